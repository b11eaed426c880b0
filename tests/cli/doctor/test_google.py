"""What Google Cloud would say, from a server on this machine that says it."""

import json
from collections.abc import Generator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import urllib3

from cli.doctor import capacity as quota
from cli.doctor.checks import Google, NotAsked, Verdict, google
from infra.cluster.kubernetes import Json
from infra.stack.names import APIS
from infra.stack.settings.schema import SliceGroup
from tests.cli.api_server import serving
from tests.cli.doctor.health import examined, faults, healthy, scope, written
from tests.cli.shown import check

SERVICES = "/serviceusage/v1/projects/p/services"
QUOTA = (
    "/cloudquotas/v1/projects/p/locations/global/services/compute.googleapis.com/quotaInfos/"
    "TPUS-PER-TPU-FAMILY-per-project-region"
)
BILLING = "/cloudbilling/v1/projects/p/billingInfo"
MACHINES = "/compute/compute/v1/projects/p/aggregated/machineTypes"
POOLS = "/container/v1/projects/p/locations/us-east5/clusters/local/nodePools"
CT6E = {"region": "us-east5", "tpu_family": "CT6E"}
ZONES = {"near": "us-east5-b", "far": "us-east5-a"}


@pytest.fixture
def answers() -> dict[str, Json]:
    """By path, that of the service first."""
    return {
        "/cloudresourcemanager/v1/projects/p": {},
        BILLING: {"billingEnabled": True},
        SERVICES: {"services": [{"config": {"name": f"{api}.googleapis.com"}} for api in APIS]},
        QUOTA: {
            "dimensionsInfos": [
                {"dimensions": CT6E | {"tpu_family": "CT5LP"}, "details": {"value": "0"}},
                {"dimensions": CT6E, "details": {"value": "16"}},
            ]
        },
        MACHINES: {"items": {"zones/us-east5-b": {"machineTypes": [{}]}, "zones/us-east5-c": {"warning": {}}}},
        POOLS: {"nodePools": [{"name": "trillium-0", "status": "RUNNING"}]},
    }


@pytest.fixture
def cloud(answers: dict[str, Json]) -> Generator[Google]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            allowed = self.headers["Authorization"] == "Bearer token"
            self.send_response(403 if not allowed else 200 if path in answers else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answers.get(path, {"error": {"message": f"no {path}"}})).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        at = f"http://127.0.0.1:{server.server_port}"
        yield Google("p", "us-east5", "token", urllib3.PoolManager(), lambda service: f"{at}/{service}")


def test_google_is_asked_for_services_quota_and_pools(cloud: Google, tmp_path: Path) -> None:
    with scope(healthy(), tmp_path, cloud) as found:
        answer = {(check.group, check.subject): check for check in examined(found)}
    for asked in (
        ("credentials", "gcloud"),
        ("credentials", "billing"),
        ("APIs", "services"),
        ("quota", "slices.trillium"),
        ("quota", "slices.trillium.zone"),
        ("nodes", "pool trillium-0"),
    ):
        assert answer[asked].verdict is Verdict.OK, answer[asked]


@pytest.mark.parametrize(("capacity", "granted"), [("on-demand", 32), ({"kind": "flex-start", "max_run_hours": 1}, 16)])
def test_groups_in_two_zones_share_the_quota_of_the_region(
    cloud: Google, answers: dict[str, Json], tmp_path: Path, capacity: object, granted: int
) -> None:
    spot = QUOTA.replace("TPUS-PER-TPU-FAMILY", "PREEMPTIBLE-TPU-V6E")
    info: Json = {"details": {"value": str(granted - 1)}}
    answers[spot] = {"dimensionsInfos": [{"dimensions": {"region": "us-east5"}, **info}]}
    answers[QUOTA]["dimensionsInfos"][1] |= info
    with scope(healthy(), tmp_path, cloud) as found:
        assert found.settings
        group = found.settings.slices["trillium"].model_dump() | {"capacity": capacity}
        slices = {name: SliceGroup.model_validate(group | {"zone": zone}) for name, zone in ZONES.items()}
        found = replace(found, settings=found.settings.model_copy(update={"slices": slices}))
        says = {check.subject: (check.verdict, check.says) for check in quota.google_quota(found)}
        answer = f"Google grants {granted - 1} chips in us-east5, near and far need {granted}"
        assert says == {f"slices.{name}": (Verdict.FAILED, answer) for name in slices}
        info["details"]["value"] = str(granted)
        assert {check.verdict for check in quota.google_quota(found)} == {Verdict.OK}


THERE: Json = {"machineTypes": [{}]}


def _pool(status: str, *conditions: Json) -> Json:
    return {POOLS: {"nodePools": [{"name": "trillium-1", "status": status, "conditions": [*conditions]}]}}


ANSWERS: dict[str, Json] = {
    "services": {SERVICES: {"services": [{"config": {"name": "compute.googleapis.com"}}]}},
    "too small a quota": {QUOTA: {"dimensionsInfos": [{"dimensions": CT6E, "details": {"value": "8"}}]}},
    "chips elsewhere": {MACHINES: {"items": {"zones/us-east5-a": THERE, "zones/us-east1-d": THERE}}},
    "chips in another region": {MACHINES: {"items": {"zones/us-east1-d": THERE}}},
    "a failed pool": _pool("ERROR", {"message": "GCE_STOCKOUT"}),
    "a pool that is created": _pool("RUNNING_WITH_ERROR"),
    "no billing": {BILLING: {"billingEnabled": False}},
}


@pytest.mark.costs(cpu_seconds=6)
def test_what_google_does_not_grant_is_said_as_in_the_golden_file(
    cloud: Google, answers: dict[str, Json], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What this machine has says nothing.
    monkeypatch.setenv("PATH", str(tmp_path))
    shown, usual = list[str](), dict(answers)
    with scope(healthy(), tmp_path, cloud) as found:
        for name, answer in ANSWERS.items():
            answers.update(usual | answer)
            said = (each for each in faults(found) if each[0] in ("APIs", "quota", "nodes") or each[1] == "billing")
            shown.append(written(name, said))
    check("doctor-google", "".join(shown))


def test_each_missing_login_is_a_fault_with_the_command_that_logs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_logins(tmp_path, monkeypatch)
    with scope(healthy(), tmp_path) as found, pytest.raises(NotAsked) as missing:
        google("p", "us-east5")
    desk = replace(found, sandbox=False, google=missing.value)
    answer = [(subject, fix) for _, subject, _, fix in faults(desk) if fix.startswith("gcloud auth")]
    assert answer == [("gcloud", "gcloud auth login"), ("application default", "gcloud auth application-default login")]


def test_credentials_that_pulumis_provider_takes_from_the_environment_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_logins(tmp_path, monkeypatch)
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "token")
    with scope(healthy(), tmp_path) as found, pytest.raises(NotAsked) as missing:
        google("p", "us-east5")
    desk = replace(found, sandbox=False, google=missing.value)
    assert "application default" not in {subject for _, subject, _, _ in faults(desk)}


def test_what_google_refuses_is_not_asked_and_no_fault(cloud: Google) -> None:
    with pytest.raises(NotAsked, match="container refuses: no /container/v1/nothing"):
        cloud.get("container", "/v1/nothing")


def test_without_gcloud_google_cloud_is_not_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotAsked, match="gcloud is not installed"):
        google("p", "us-east5")


_NO_LOGIN = """ERROR: (gcloud.auth.print-access-token) You do not have an active account.
Please run:

  $ gcloud auth login

to obtain new credentials."""


def _without_logins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a gcloud without a login on the PATH."""
    program = folder / "gcloud"
    program.write_text(f"#!/bin/sh\necho '{_NO_LOGIN}' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
