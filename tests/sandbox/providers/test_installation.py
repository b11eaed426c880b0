import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import pytest

from sandbox.programs import ProgramsError
from sandbox.providers.installation import VARIABLE, install
from sandbox.site import create


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
    with pytest.raises(ProgramsError, match="does not exist; install it with `pulumi plugin install resource kube"):
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
