"""A member submits jobs and follows them with a kubeconfig only: without Pulumi, its state and the sandbox's folder."""

import base64
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from infra.cluster.kubernetes import ApiError, ApiServer
from infra.stack.names import PUBLISHED
from sandbox.certificates import KeyPair, kubeconfig, sign
from sandbox.daemon import CHECKOUT
from sandbox.site import Site
from tests.chain.people import JOBSETS, delete, refusal
from tests.chain.shared import ADA, JOB
from tests.chain.stack import Chain, wait_until
from tests.infra.one_job import unnamed
from tests.infra.recording import stack_values

pytestmark = pytest.mark.complete


@dataclass(frozen=True)
class Member:
    """A member of the team `first`, who has a certificate of the API server's authority and nothing else."""

    home: Path

    @property
    def config(self) -> Path:
        return self.home / ".kube" / "config"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command `multislice`, with no program on the PATH that could read a stack."""
        line = [sys.executable, "-m", "cli.main", *words]
        variables = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "COLUMNS": "160", "NO_GCE_CHECK": "true"}
        return subprocess.run(
            line, cwd=CHECKOUT, env=variables, capture_output=True, text=True, timeout=300, check=False
        )

    def typed(self, *words: str) -> str:
        command, *rest = words
        ended = self.run(command, "--namespace", "first", *rest)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def refused(self, *words: str, status: int = 2, namespace: str = "first") -> str:
        ended = self.run(*words, "--namespace", namespace)
        assert (ended.returncode, "Traceback" in ended.stderr) == (status, False), ended.stderr
        return ended.stderr

    def file(self, **job: object) -> str:
        path = self.home / "job.yaml"
        path.write_text(yaml.safe_dump(job))
        return str(path)

    @property
    def api(self) -> ApiServer:
        return ApiServer.of_kubeconfig(str(self.config), None)[0]


def _kubeconfig(site: Site, user: str) -> str:
    key = serialization.load_pem_private_key((site.pki / "ca.key").read_bytes(), None)
    assert isinstance(key, RSAPrivateKey)
    authority = (site.pki / "ca.crt").read_bytes()
    pair = sign(KeyPair(x509.load_pem_x509_certificate(authority), key), user)
    private = pair.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    data = {"client-certificate-data": pair.certificate_pem, "client-key-data": private}
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    return kubeconfig(site.api_server_url, authority, encoded)


@pytest.fixture(scope="module")
def ada(stack: Chain, tmp_path_factory: pytest.TempPathFactory) -> Member:
    member = Member(tmp_path_factory.mktemp("ada"))
    member.config.parent.mkdir()
    member.config.write_text(_kubeconfig(stack.site, ADA))
    return member


def training(name: str, **changes: object) -> dict[str, Any]:
    """A short training job on one slice, as a member writes it."""
    job: Any = unnamed(stack_values("local"))
    del job["team"]
    short = {"steps": 6, "save_every_steps": 3, "evaluate_every_steps": 6}
    return {**job, "name": name, "slices": {"group": "trillium", "count": 1}, "training": short, **changes}


def _end(member: Member, name: str) -> Mapping[str, Any]:
    def status() -> Mapping[str, Any]:
        return member.api.request("GET", f"{JOBSETS.format('first')}/{name}").get("status", {})

    wait_until(lambda: "terminalState" in status(), lambda: member.run("explain", name, "--namespace", "first").stdout)
    return status()


def test_a_member_trains_and_sees_the_job_without_access_to_pulumi(stack: Chain, ada: Member) -> None:
    file = ada.file(**training("mine"))
    shown = ada.typed("submit", file, "--dry-run")
    assert "borrows 4 idle chips" in shown
    assert "a day) while it runs" in shown
    assert "dry run: nothing was submitted" in shown
    assert ada.api.find(f"{JOBSETS.format('first')}/mine") is None
    answer = json.loads(ada.typed("submit", file, "--yes", "-o", "json"))
    assert (answer["submitted"], answer["jobs"]) == (True, ["mine"])
    listed = json.loads(ada.typed("list", "-o", "json"))
    assert [job["name"] for job in listed["jobs"]] == ["mine"]
    assert "mine" in ada.typed("explain", "mine")
    assert _end(ada, "mine")["terminalState"] == "Completed"
    assert "step 6" in ada.typed("logs", "mine")
    status = json.loads(ada.typed("status", "-o", "json"))
    assert [(job["name"], job["state"]) for job in status["jobs"]] == [("mine", "completed")]
    # The kubeconfig says where the sandbox has its storage.
    (mine,) = json.loads(ada.typed("status", "mine", "-o", "json"))["jobs"]
    assert (mine["step"], mine["steps"]) == (6, 6)
    folder = stack.site.buckets / "sandbox-local-checkpoints" / "teams" / "first" / "jobs" / "mine"
    assert [*folder.glob("runs/*/steps/*.jsonl")]
    assert "expected a new name, got mine" in ada.refused("submit", file, "--yes")
    delete(ada.api, "first", "mine")


def test_a_member_runs_a_program_with_arguments_in_the_trainers_image(ada: Member) -> None:
    program = ("python", "-c", "import sys; print('args', sys.argv[1:])", "--rate", "0.1")
    words = ("--name", "program", "--slices", "trillium:1", "--yes")
    assert "job first/program was submitted" in ada.typed("submit", *words, "--", *program)
    assert _end(ada, "program")["terminalState"] == "Completed"
    assert "args ['--rate', '0.1']" in ada.typed("logs", "program")
    delete(ada.api, "first", "program")


def test_a_member_reads_the_record_of_the_own_team_and_changes_none(ada: Member) -> None:
    record = f"/api/v1/namespaces/first/configmaps/{PUBLISHED}"
    data = ada.api.request("GET", record)["data"]
    assert ADA not in json.dumps(data)
    for method in ("PATCH", "DELETE", "PUT"):
        assert refusal(ada.api, method, record, {"data": {}}) == 403
    assert refusal(ada.api, "GET", record.replace("first", "research")) == 403
    with pytest.raises(ApiError, match="forbidden"):
        ada.api.request("GET", "/api/v1/namespaces/first/configmaps")


def test_what_a_rule_forbids_is_not_submitted_and_every_error_is_reported(ada: Member) -> None:
    slices = {"group": "trillium", "count": 9}
    told = ada.refused("submit", ada.file(**training("wrong", slices=slices, priority="urgent")), "--yes", status=1)
    assert "priority: expected one of 'low', 'normal' or 'high'" in told
    told = ada.refused("submit", ada.file(**training("wrong", slices=slices, host_network=True)), "--yes", status=1)
    assert "slices.count: expected at most the 4 slices of trillium, got 9" in told
    assert "host_network: expected false" in told
    assert ada.api.find(f"{JOBSETS.format('first')}/wrong") is None


def test_a_namespace_of_others_and_a_missing_kubeconfig_are_reported(ada: Member, tmp_path: Path) -> None:
    assert "you may not list jobsets.jobset.x-k8s.io in namespace second" in ada.refused(
        "list", status=1, namespace="second"
    )
    told = ada.refused("status", "--kubeconfig", str(tmp_path / "none"), status=1)
    assert "expected a kubeconfig of a cluster that answers" in told
    assert "--yes" in ada.refused("submit", ada.file(**training("unconfirmed")), status=1)


def test_the_stacks_owner_submits_through_pulumis_outputs(stack: Chain, ada: Member) -> None:
    words = ("--stack", "local", "--engine", "sandbox", "--sandbox", str(stack.site.root))
    taken = ada.file(**training(JOB, team="research"))
    line = [sys.executable, "-m", "cli.main", "submit", taken, "--dry-run", *words]
    ended = subprocess.run(line, cwd=CHECKOUT, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, "a name other than those of the stack's own jobs" in ended.stderr) == (1, True)
