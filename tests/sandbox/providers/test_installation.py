import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

from sandbox.providers import install
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
