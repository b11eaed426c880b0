import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import pulumi
import pytest

from sandbox.catalog import ProgramsError
from sandbox.programs import Operator, Programs
from sandbox.providers import install
from sandbox.providers.published import VARIABLE, local_charts
from sandbox.site import create


def test_plugins_lie_where_the_engine_looks_in_the_versions_of_the_sdk(tmp_path: Path) -> None:
    site = create(tmp_path)
    install(site)
    for name in ("gcp", "kubernetes"):
        folder = site.pulumi_home / "plugins" / f"resource-{name}-v{version(f'pulumi_{name}')}"
        assert os.access(folder / f"pulumi-resource-{name}", os.X_OK)


def test_the_installed_credential_plugin_finds_its_site_from_any_folder(tmp_path: Path) -> None:
    site = create(tmp_path / "site")
    site.pki.mkdir()
    (site.pki / "admin.token").write_text("secret")
    install(site)
    environment = {"TPU_MULTISLICE_SANDBOX": str(site.root), "PATH": os.environ["PATH"]}
    program = site.root / "bin" / "gke-gcloud-auth-plugin"
    printed = subprocess.run([program], cwd="/", env=environment, capture_output=True, text=True, check=True)
    status = json.loads(printed.stdout)["status"]
    assert status["token"] == "secret"
    # Clients in Python renew a token five minutes before its end.
    left = datetime.fromisoformat(status["expirationTimestamp"]) - datetime.now(UTC)
    assert timedelta(minutes=5) < left < timedelta(minutes=7)


def test_the_published_plugin_takes_the_place_of_the_stand_in_and_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, found = create(tmp_path / "site"), f"plugins/resource-kubernetes-v{version('pulumi_kubernetes')}"
    published, installed = tmp_path / "home" / found, site.pulumi_home / found
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(VARIABLE, "published")
    with pytest.raises(
        ProgramsError, match="there is none at .*; install it with `pulumi plugin install resource kube"
    ):
        install(site)
    published.mkdir(parents=True)
    program = published / "pulumi-resource-kubernetes"
    program.write_text("published")
    program.chmod(0o755)
    install(site)
    assert (installed / program.name).read_text() == "published"
    monkeypatch.delenv(VARIABLE)
    install(site)
    assert "sandbox.providers.kubernetes" in (installed / program.name).read_text()
    assert program.read_text() == "published"


def test_the_published_plugin_gets_the_sandboxs_charts_without_what_no_server_here_answers_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chart = tmp_path / "programs" / "of-one-lock" / "charts" / "kueue"
    (chart / "templates").mkdir(parents=True)
    (chart / "templates" / "service.yaml").write_text("kind: Service\n")
    (chart / "templates" / "visibility.yaml").write_text("kind: APIService\n")
    monkeypatch.setattr(
        Programs, "operator", lambda _self, name, version: {("kueue", "1"): Operator(chart, chart)}[name, version]
    )
    transform = local_charts(Programs({}), tmp_path / "copies")

    def declared(resource_type: str, **props: str) -> pulumi.ResourceTransformArgs:
        return pulumi.ResourceTransformArgs(False, resource_type, "kueue", props, pulumi.ResourceOptions())

    assert transform(declared("kubernetes:core/v1:Namespace")) is None
    # The plugin registers each chart once more, without inputs.
    assert transform(declared("kubernetes:helm.sh/v4:Chart")) is None
    for _ in range(2):
        changed = transform(
            declared("kubernetes:helm.sh/v4:Chart", chart="oci://example.org/charts/kueue", version="1")
        )
        assert changed
        copy = Path(str(changed.props["chart"]))
        assert copy.name == "kueue"
        assert [path.name for path in (copy / "templates").iterdir()] == ["service.yaml"]
