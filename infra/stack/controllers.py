"""Versions of JobSet and Kueue that a stack installs, and their CPU and memory by number of TPU hosts.

Each controller keeps every Node and Pod of the cluster in memory, including GKE's own pods on each node. Measured in
the sandbox with nine pods per node (Kueue 0.19.2, JobSet 0.12.0, GOGC=50): from 0 to 2,048 nodes, Kueue grows from 91
to 422 MiB and JobSet from 39 to 358 MiB. Both grow linearly, by 0.16 MiB per host. With smaller pods of two containers,
Kueue takes 414 MiB at 4,099 nodes and JobSet 321 MiB. Kueue's chart limits it to 512 MiB, which is too little for 2,600
hosts. This module requests six times the measured memory: Go's usual GOGC=100 takes a third more, live objects are
larger, and a restart lists all of them at once. xpk requests 32 MiB per host for Kueue and 1.2 MiB for JobSet, at least
4 GiB (`core/kueue_manager.py`, `core/jobset.py`).
"""

import math
import re
from dataclasses import dataclass

_HOSTS_PER_STEP, _MIB_PER_STEP = 512, 512
"""Requests grow in steps, because a changed request restarts the controller."""
_MIN_LIMIT_MIB = 4096
_BASE_MILLICORES, _MILLICORES_PER_1000_HOSTS, _MAX_MILLICORES = 500, 500, 4000
_BURST = 4
"""CPU limit as a multiple of the request: four times, as in the charts."""
_GIB_PER_VCPU = {"standard": 4, "highmem": 8, "highcpu": 1}
_MACHINE = re.compile(r"-(standard|highmem|highcpu)-(\d+)(-lssd|-metal)?$")
_CUSTOM_MACHINE = re.compile(r"custom-(\d+)-(\d+)(-ext)?$")
"""With its vCPUs and MiB."""


@dataclass(frozen=True)
class Resources:
    """CPU and memory of a pod or a machine."""

    millicores: int
    memory_mib: int


_SHARED_CORE = {"e2-small": Resources(500, 2048), "e2-medium": Resources(1000, 4096)}
"""Including the share of two vCPUs that they may use for longer
(https://cloud.google.com/compute/docs/general-purpose-machines#e2_shared-core_machine_types)."""


def controller_request(hosts: int) -> Resources:
    """Return the request of each of the two controllers in a cluster with this many TPU hosts."""
    millicores = min(_BASE_MILLICORES + hosts // 1000 * _MILLICORES_PER_1000_HOSTS, _MAX_MILLICORES)
    return Resources(millicores, _MIB_PER_STEP * (1 + math.ceil(hosts / _HOSTS_PER_STEP)))


def chart_resources(hosts: int) -> dict[str, dict[str, str]]:
    """Return the same request with limits, as a value of a Helm chart."""
    wanted = controller_request(hosts)
    return {
        "requests": {"cpu": f"{wanted.millicores}m", "memory": f"{wanted.memory_mib}Mi"},
        "limits": {
            "cpu": f"{wanted.millicores * _BURST}m",
            "memory": f"{max(wanted.memory_mib, _MIN_LIMIT_MIB)}Mi",
        },
    }


def machine_size(machine_type: str) -> Resources | None:
    """Return the size of a CPU machine if its name contains it, as in n2-standard-8."""
    if machine_type in _SHARED_CORE:
        return _SHARED_CORE[machine_type]
    if custom := _CUSTOM_MACHINE.search(machine_type):
        return Resources(int(custom[1]) * 1000, int(custom[2]))
    if found := _MACHINE.search(machine_type):
        vcpus = int(found[2])
        return Resources(vcpus * 1000, vcpus * _GIB_PER_VCPU[found[1]] * 1024)
    return None


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
