"""State in a bucket: the real engine on `gs://`, against the sandbox's GCS server.

Without Google: no KMS (a passphrase encrypts), no IAM, no versions of objects, one machine.
"""

import subprocess
import urllib.request
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pulumi
import pytest
from pulumi import automation
from pulumi.automation import ConcurrentUpdateError

from sandbox import builds, programs
from sandbox.programs import Programs
from sandbox.servers import Supervision, start_gcs
from sandbox.site import Site, create
from tests.chain.stack import ignore

pytestmark = pytest.mark.costs(cpu_seconds=15)

BUCKET = "pulumi-state"
CANARY = "canary-of-the-state"
LOCKED = "the stack is currently locked by 1 lock"


@dataclass
class Desk:
    """One person's checkout and Pulumi, on some backend."""

    folder: Path
    site: Site
    programs: Programs
    backend: str
    meanwhile: Callable[[], None] = field(default=lambda: None)
    """Called while an update runs."""

    def __post_init__(self) -> None:
        (self.folder / "project").mkdir(parents=True)

    @property
    def stack(self) -> automation.Stack:
        """The stack `dev`, made if it is not there."""
        options = automation.LocalWorkspaceOptions(
            work_dir=str(self.folder / "project"),
            pulumi_home=str(self.folder / "home"),
            env_vars=self.environment,
            project_settings=automation.ProjectSettings("tiny", "python"),
            pulumi_command=automation.PulumiCommand(root=str(self.programs.path("pulumi").parent.parent)),
        )
        return automation.create_or_select_stack("dev", project_name="tiny", program=self._program, opts=options)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_BACKEND_URL": self.backend,
            "PULUMI_CONFIG_PASSPHRASE": "test",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            # Go's client wants it without a scheme, and some identity.
            "STORAGE_EMULATOR_HOST": f"{self.site.address}:{self.site.gcs_port}",
            "GOOGLE_OAUTH_ACCESS_TOKEN": "sandbox",
            "PATH": "/usr/bin:/bin",
        }

    def pulumi(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of Pulumi as a person types it."""
        return subprocess.run(
            [str(self.programs.path("pulumi")), *arguments, "--non-interactive"],
            cwd=self.folder / "project",
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def _program(self) -> None:
        kept = pulumi.Stash("kept", input=pulumi.Output.secret(CANARY))
        pulumi.export("kept", kept.output)
        if not pulumi.runtime.is_dry_run():
            self.meanwhile()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    """A GCS server with a bucket for state, and nothing else of the sandbox."""
    site = create(tmp_path_factory.mktemp("backend"))
    (site.buckets / BUCKET).mkdir(parents=True)
    supervision = Supervision(site.servers)
    start_gcs(site, builds.prepare(ignore), supervision)
    try:
        yield site
    finally:
        supervision.stop()


@pytest.fixture(scope="module")
def desk(site: Site) -> Desk:
    """A desk whose stack has been brought up."""
    desk = Desk(site.root / "desk", site, programs.found(), f"gs://{BUCKET}")
    desk.stack.up()
    return desk


def _objects(site: Site) -> dict[str, bytes]:
    root = site.buckets / BUCKET
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _request(site: Site, method: str, path: str, body: bytes | None = None) -> None:
    """Another client of the bucket."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(urllib.request.Request(f"{site.gcs_url}{path}", body, method=method), timeout=60).close()


def test_the_lock_of_an_update_that_died_is_lifted_by_cancel(site: Site, desk: Desk):
    locks: dict[str, bytes] = {}
    desk.meanwhile = lambda: locks.update({name: text for name, text in _objects(site).items() if "/locks/" in name})
    desk.stack.up()
    desk.meanwhile = lambda: None
    (name,) = locks
    _request(site, "POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={name}", locks[name])
    with pytest.raises(ConcurrentUpdateError, match=LOCKED):
        desk.stack.up()
    assert desk.pulumi("cancel", "--yes", "--stack=dev").returncode == 0
    assert desk.stack.up().summary.result == "succeeded"


def test_a_stack_moves_to_another_backend_with_its_secrets_encrypted_all_the_way(site: Site, desk: Desk):
    objects = _objects(site)
    assert [name for name in objects if name.startswith(".pulumi/history/tiny/dev/")]
    assert CANARY.encode() not in b"".join(objects.values())
    (site.root / "elsewhere").mkdir()
    exported = desk.folder / "project" / "dev.json"
    assert desk.pulumi("stack", "export", "--stack=dev", f"--file={exported}").returncode == 0
    assert CANARY not in exported.read_text()
    shown = desk.pulumi("stack", "export", "--stack=dev", "--show-secrets")
    assert CANARY in shown.stdout

    moved = Desk(site.root / "moved", site, desk.programs, f"file://{site.root / 'elsewhere'}")
    # The stack file goes along: its salt belongs to the secrets.
    (moved.folder / "project" / "Pulumi.dev.yaml").write_text((desk.folder / "project" / "Pulumi.dev.yaml").read_text())
    stack = moved.stack
    imported = moved.pulumi("stack", "import", "--stack=dev", f"--file={exported}")
    assert imported.returncode == 0, imported.stderr
    assert stack.outputs()["kept"].value == CANARY
    changes: Any = stack.preview().change_summary
    assert set(changes) == {automation.OpType.SAME}


def test_a_lost_state_comes_back_from_an_export(site: Site, desk: Desk):
    backup = desk.folder / "project" / "backup.json"
    assert desk.pulumi("stack", "export", "--stack=dev", f"--file={backup}").returncode == 0
    _request(site, "DELETE", f"/storage/v1/b/{BUCKET}/o/{quote('.pulumi/stacks/tiny/dev.json', safe='')}")
    assert desk.pulumi("stack", "export", "--stack=dev").returncode != 0
    assert desk.pulumi("stack", "init", "dev").returncode == 0
    assert desk.pulumi("stack", "import", "--stack=dev", f"--file={backup}").returncode == 0
    assert desk.stack.outputs()["kept"].value == CANARY
    changes: Any = desk.stack.preview().change_summary
    assert set(changes) == {automation.OpType.SAME}
