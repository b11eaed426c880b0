"""Decisions of a real Kueue about the cases of `tests.cli.rehearse.situations`, in a file.

The first line has the version of Kueue and its configurations. Each following line has a case: the objects that
`multislice rehearse` reads, as the API server gave them, and what Kueue then did.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import urllib3

from benchmarks.kueue_decisions import Seen
from cli.rehearse.rehearse import Rehearsal
from infra.cluster.kubernetes import ApiServer, Json
from infra.cluster.kueue_objects import CONFIG_MAP
from infra.review.admission.manifests import name_of
from infra.stack.manifests import is_true
from infra.stack.names import CONFIG_MAPS, JOBSET_GROUP, KUEUE_API_VERSION, KUEUE_GROUP, KUEUE_NAMESPACE
from tests.cli.rehearse.situations import Case

RECORD = Path(__file__).parent / "decisions.jsonl"
RECORD_AGAIN = "record again with: UPDATE_GOLDEN=1 .venv/bin/python -m pytest tests/sandboxes/test_foreign_queues.py"
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_FIRST_TIME = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Decided:
    """A case and what a real Kueue did."""

    case: str
    digest: str
    """Of the case, so that a changed case is noticed."""
    objects: Mapping[str, Sequence[Json]]
    """What `rehearse` reads before the next job is submitted, by the plural of its kind."""
    seen: Seen
    runs: tuple[str, ...]
    """Workloads that have quota in the end."""

    def differences(self, case: Case, said: Rehearsal) -> list[str]:
        """Where `rehearse` differs. It may say that it does not know, for the reasons of the case."""
        about = f"{self.case}: {said.verdict}; {'; '.join(said.reasons)}. Kueue: {self.seen}; runs {self.runs}"
        if case.unknown:
            pairs = zip(case.unknown, said.reasons, strict=False)
            named = len(said.reasons) == len(case.unknown) and all(part in reason for part, reason in pairs)
            return [] if said.outcome == "unknown" and named else [about]
        reserved = {name_of(each) for each in self.objects["workloads"] if is_true(each, "QuotaReserved")}
        found = said.simulated
        if found is None:
            same = said.outcome in ("waits", "never") and self.seen.outcome in ("waits", "never", "unsaid")
            return [] if same and reserved == {*self.runs} else [about]
        stopped = {each.workload for each in found.preempted if not each.runs_again}
        runs = reserved - stopped | {*found.started_first, *found.started_later}
        runs |= {found.workload} if found.admitted_in_the_end else set()
        same = said.outcome == found.outcome and self.seen.agrees_with(found)
        return [] if same and runs == {*self.runs} else [f"{about}; expected {sorted(runs)}"]


def digest_of(case: Case) -> str:
    text = json.dumps({**asdict(case), "unknown": None}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Recorded(ApiServer):
    """The API server of a recorded case."""

    objects: Mapping[str, Sequence[Json]]
    configuration: str

    @classmethod
    def of_decided(cls, decided: Decided, configuration: str) -> "Recorded":
        return cls("", urllib3.PoolManager(), objects=decided.objects, configuration=configuration)

    def find(self, path: str, query: Mapping[str, str] | None = None) -> Json | None:
        folder, _, name = path.partition("?")[0].rpartition("/")
        single: dict[str, Json] = {
            f"/apis/{KUEUE_GROUP}": {"versions": [{"groupVersion": KUEUE_API_VERSION}]},
            f"/apis/{JOBSET_GROUP}": {},
            f"{CONFIG_MAPS.format(KUEUE_NAMESPACE)}/{CONFIG_MAP}": {
                "metadata": {},
                "data": {"config.yaml": self.configuration},
            },
        }
        if folder == "/api/v1/namespaces":
            return self.objects["namespaces"][0]
        return single[path] if path in single else {"items": self.objects[name]}


def write(kueue: str, configurations: Mapping[str, str], found: Iterable[Decided]) -> None:
    """Write the decisions, without what differs between recordings for no reason."""
    lines = [json.dumps({"kueue": kueue, "configurations": configurations})]
    for each in found:
        line = {**asdict(each), "seen": each.seen.model_dump()}
        lines.append(_plain(json.dumps(line, separators=(",", ":")), each))
    RECORD.write_text("".join(f"{line}\n" for line in lines))


def _plain(text: str, decided: Decided) -> str:
    """Replace names, UIDs and times by those that only show their order."""
    for each in decided.objects["workloads"]:
        if owners := each["metadata"].get("ownerReferences"):
            text = text.replace(each["metadata"]["name"], f"{owners[0]['kind'].lower()}-{owners[0]['name']}")
    uids, times = sorted(set(_UUID.findall(text))), sorted(set(_TIME.findall(text)))
    text = _UUID.sub(lambda found: f"{uids.index(found[0]):02}", text)
    return _TIME.sub(lambda found: f"{_FIRST_TIME + timedelta(seconds=times.index(found[0])):%Y-%m-%dT%H:%M:%SZ}", text)


def read() -> tuple[str, Mapping[str, str], list[Decided]]:
    """The version of Kueue, its configurations by name, and the decisions."""
    lines: list[Any] = list(map(json.loads, RECORD.read_text().splitlines()))
    head, *decisions = lines
    found = [
        Decided(
            case=line["case"],
            digest=line["digest"],
            objects=line["objects"],
            seen=Seen.model_validate_json(json.dumps(line["seen"])),
            runs=tuple(line["runs"]),
        )
        for line in decisions
    ]
    return head["kueue"], head["configurations"], found
