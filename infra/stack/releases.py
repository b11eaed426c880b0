"""Versions of JobSet and Kueue that a stack installs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Release:
    """A published version of a controller, pinned by the digests of its chart and image.

    The digests are those in Kubernetes' list of promoted images
    (https://github.com/kubernetes/k8s.io/tree/main/registry.k8s.io/images). Helm refuses a chart with another digest,
    and a version whose tag has moved to another digest.
    """

    name: str
    version: str
    chart_digest: str
    image_digest: str

    @property
    def chart(self) -> str:
        return f"oci://registry.k8s.io/{self.name}/charts/{self.name}@{self.chart_digest}"

    @property
    def image(self) -> dict[str, str]:
        return {"repository": f"registry.k8s.io/{self.name}/{self.name}", "tag": f"v{self.version}@{self.image_digest}"}


JOBSET = Release(
    name="jobset",
    version="0.12.0",
    chart_digest="sha256:02808a890a0b0e03a1d3bf5959e2f562b3b47c15e446bbba358c1d24e1f81b24",
    image_digest="sha256:e75536f1135b7bb2f19f8c3b620782fbdd9091d73398e3a272f9a5fed322980d",
)
KUEUE = Release(
    name="kueue",
    version="0.19.2",
    chart_digest="sha256:ab436c33ef6c6b9b9e95b633e618bca0e0e436d6581d3b27bd12fc8a8026ab34",
    image_digest="sha256:8a77be2df3d441d1a99b60eb1625c835b5f4feda5db02ece26818cf2a30c4d86",
)
"""Vendors JobSet 0.12.0. An older Kueue would drop fields of a newer JobSet."""
