"""A Kueue that no stack made, and the cases of `tests.cli.rehearse.situations` in its cluster.

All cases run at the same time. Each has a namespace of its name. The names of its objects of the cluster begin with
that name, which the record does not show.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter
from typer.testing import CliRunner

from benchmarks.kueue_decisions import Seen
from benchmarks.kueue_trials import Watched, see
from cli.main import app
from cli.rehearse.rehearse import Rehearsal
from infra.cluster import kueue_objects
from infra.cluster.kubernetes import ApiError, ApiServer, Json
from infra.cluster.kueue_objects import CONFIG_MAP
from infra.review.admission.manifests import name_of
from infra.stack.manifests import is_true
from infra.stack.names import CONFIG_MAPS, KUEUE_API_VERSION, KUEUE_NAMESPACE
from sandbox.programs import OPERATORS
from sandbox.providers.charts import render
from tests.chain.stack import PATIENCE_SECONDS, Chain, wait_until
from tests.cli.rehearse.recorded import Decided, digest_of
from tests.cli.rehearse.situations import Case

_NAMESPACED = ("LocalQueue", "Workload", "JobSet", "Job", "Pod", "LimitRange")
_NAMING = ("cohort", "cohortName", "parent", "parentName", "clusterQueue", "topologyName")
"""Keys whose values are names of objects of the cluster, which need not exist."""
_APIS = {"PriorityClass": "scheduling.k8s.io/v1", "Namespace": "v1"}
"""APIs of objects that do not say theirs; that of Kueue for the others."""
_PLURALS = {"Topology": "topologies"} | {
    kind: f"{kind.lower()}es" for kind in ("PriorityClass", "WorkloadPriorityClass")
}
_UNINTERESTING = ("managedFields", "resourceVersion", "generation", "finalizers")
_THREADS = 8
_CONFIGURATION = f"{CONFIG_MAPS.format(KUEUE_NAMESPACE)}/{CONFIG_MAP}"
_DEPLOYMENTS = "/apis/apps/v1/deployments"


def install(chain: Chain, more: Json) -> str:
    """Install JobSet and Kueue as their charts are published, with more keys in Kueue's configuration. Return it."""
    documents: list[Json] = []
    for name in OPERATORS:
        namespace = f"{name}-system"
        made = render({"chart": name, "namespace": namespace}, name, chain.programs)
        documents += [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, *made]
    for each in documents:
        if each["kind"].endswith("WebhookConfiguration"):  # They are in no namespace, whatever the chart says.
            each["metadata"].pop("namespace", None)
    (config_map,) = [each for each in documents if each["metadata"]["name"] == CONFIG_MAP]
    config_map["data"] = _with(config_map["data"], more)
    with ThreadPoolExecutor(_THREADS) as pool:
        for first in (True, False):
            wave = [each for each in documents if (each["kind"] == "Namespace") == first]
            list(pool.map(lambda each: _create(chain.api, each), wave))
    _wait(chain)
    return next(iter(config_map["data"].values()))


def configure(chain: Chain, more: Json) -> str:
    """Set keys of Kueue's configuration, and return all of it. Kueue starts again."""
    data = _with(chain.api.request("GET", _CONFIGURATION)["data"], more)
    chain.api.patch(_CONFIGURATION, {"data": data})
    restart = {"spec": {"template": {"metadata": {"annotations": {"configured": str(time.time())}}}}}
    (kueue,) = [each for each in _deployments(chain) if each["metadata"]["namespace"] == KUEUE_NAMESPACE]
    chain.api.patch(f"/apis/apps/v1/namespaces/{KUEUE_NAMESPACE}/deployments/{kueue['metadata']['name']}", restart)
    _wait(chain)
    return next(iter(data.values()))


def _with(data: Mapping[str, str], more: Json) -> dict[str, str]:
    ((file, text),) = data.items()
    return {file: yaml.safe_dump({**yaml.safe_load(text), **more})}


def _deployments(chain: Chain) -> list[Json]:
    return chain.api.request("GET", _DEPLOYMENTS)["items"]


def _wait(chain: Chain) -> None:
    def available(each: Json) -> bool:
        return each.get("status", {}).get("observedGeneration") == each["metadata"]["generation"]

    def reviewed() -> bool:
        """Whether the API server trusts the webhooks, which is later."""
        flavor = {"apiVersion": KUEUE_API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": "probe"}}
        with suppress(ApiError):
            chain.api.request("POST", _path(flavor), flavor, {"dryRun": "All"})
            return True
        return False

    wait_until(lambda: all(map(available, _deployments(chain))), lambda: str(_deployments(chain)))
    wait_until(reviewed, lambda: "Kueue's webhooks do not answer")


@dataclass(frozen=True)
class _Placed:
    """A case with names that no other case has."""

    case: Case

    @property
    def prefix(self) -> str:
        return f"{self.case.name}."

    @property
    def namespace(self) -> Json:
        labels = [each["metadata"]["labels"] for each in self.case.objects if each["kind"] == "Namespace"]
        return {"kind": "Namespace", "metadata": {"name": self.case.name, "labels": labels[0] if labels else {}}}

    def place(self, made: Json) -> Json:
        found: Json = {"apiVersion": _APIS.get(made["kind"], KUEUE_API_VERSION), **self._renamed(made, self._names())}
        if made["kind"] in _NAMESPACED:
            found["metadata"] |= {"name": made["metadata"]["name"], "namespace": self.case.name}
        return found

    def _names(self) -> set[str]:
        every = [*self.case.objects, *self.case.jobs, *self.case.changes]
        named = {each["metadata"]["name"] for each in every if each["kind"] not in _NAMESPACED}
        return named | set(_referred(self.case.objects))

    def _renamed(self, value: Any, names: set[str]) -> Any:
        if isinstance(value, dict):
            return {key: self._renamed(each, names) for key, each in value.items()}
        if isinstance(value, list):
            return [self._renamed(each, names) for each in value]
        return f"{self.prefix}{value}" if value in names else value

    def owns(self, found: Json) -> bool:
        metadata = found["metadata"]
        return self.case.name in (metadata.get("namespace"), metadata["name"]) or metadata["name"].startswith(
            self.prefix
        )

    def plain[Plain](self, kind: type[Plain], value: Any) -> Plain:
        """Return a value without the prefix of the names."""
        return TypeAdapter(kind).validate_json(json.dumps(value).replace(self.prefix, ""))


def _referred(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key in _NAMING:
                yield each
            elif key in ("flavors", "admissionChecks"):
                yield from (named["name"] if isinstance(named, dict) else named for named in each)
            yield from _referred(each)
    elif isinstance(value, list):
        for each in value:
            yield from _referred(each)


def _path(made: Json) -> str:
    metadata, version = made["metadata"], made["apiVersion"]
    namespace = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    plural = _PLURALS.get(made["kind"], f"{made['kind'].lower()}s")
    return f"{'/apis/' if '/' in version else '/api/'}{version}{namespace}/{plural}"


def _create(api: ApiServer, made: Json) -> None:
    api.request("POST", _path(made), made)
    if made["kind"] == "AdmissionCheck" and "status" in made:
        # No controller runs for it.
        api.patch(f"{_path(made)}/{made['metadata']['name']}/status", {"status": made["status"]})


def _change(api: ApiServer, made: Json) -> None:
    api.patch(f"{_path(made)}/{made['metadata']['name']}", {"spec": made["spec"]})


@dataclass(frozen=True)
class _Noting(ApiServer):
    """Keeps the lists that are read, by the plural of the kind."""

    lists: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])

    def find(self, path: str, query: Mapping[str, str] | None = None) -> Json | None:
        found = super().find(path, query)
        if found and "items" in found:
            self.lists[path.partition("?")[0].rpartition("/")[2]] = found["items"]
        return found


def decide(chain: Chain, cases: Sequence[Case], folder: Path) -> list[tuple[Decided, Rehearsal]]:
    """Let Kueue decide about the cases. Return its decisions, and what `rehearse` said right before them."""
    api, placed = chain.api, [_Placed(case) for case in cases]
    with ThreadPoolExecutor(_THREADS) as pool:

        def each(act: Callable[[ApiServer, Json], None], chosen: Callable[[Case], Sequence[Json]]) -> None:
            made = [[one.place(each) for each in chosen(one.case)] for one in placed]
            list(pool.map(lambda some: [act(api, each) for each in some], made))

        list(pool.map(lambda one: _create(api, {"apiVersion": "v1", **one.namespace}), placed))
        each(_create, lambda case: [made for made in case.objects if made["kind"] != "Namespace"])
        watched = Watched(api, lambda workload: workload["metadata"]["namespace"])
        for turn in range(max(len(case.jobs) for case in cases)):
            each(_create, lambda case, turn=turn: case.jobs[turn : turn + 1])
            # The workloads must be created in this order, and timestamps have whole seconds.
            _await_workloads(api, [one.place(made) for one in placed for made in one.case.jobs[turn : turn + 1]])
            time.sleep(1)
        watched.settle(PATIENCE_SECONDS)
        each(_change, lambda case: case.changes)
        watched.settle(PATIENCE_SECONDS)
        noting = _Noting(api.url, api.pool, api.credentials)
        kueue_objects.read(noting, cases[0].name)
        of_core = {plural: api.request("GET", f"/api/v1/{plural}")["items"] for plural in ("namespaces", "limitranges")}
        lists = {**noting.lists, **of_core}
        said = [_rehearse(chain, one.case.name, one.place(one.case.next), folder) for one in placed]
        each(_create, lambda case: [case.next])
        _await_workloads(api, [one.place(one.case.next) for one in placed])
        after = watched.settle(PATIENCE_SECONDS)
    pairs = zip(placed, said, strict=True)
    return [(_decided(one, lists, after, watched), one.plain(Rehearsal, answer)) for one, answer in pairs]


def _await_workloads(api: ApiServer, jobs: Sequence[Json]) -> None:
    """Wait until Kueue has made workloads of the jobs."""

    def missing() -> list[str]:
        found = api.request("GET", f"/apis/{KUEUE_API_VERSION}/workloads")["items"]
        return [str(job["metadata"]) for job in jobs if not any(_is_of(each, job) for each in found)]

    wait_until(lambda: not missing(), lambda: str(missing()))


def _rehearse(chain: Chain, namespace: str, job: Json, folder: Path) -> Json:
    """Return what the command says."""
    file = folder / "job.yaml"
    file.write_text(yaml.dump(job, Dumper=yaml.CSafeDumper))
    words = ["rehearse", str(file), "--kubeconfig", str(chain.site.kubeconfig), "-n", namespace, "-o", "json"]
    found = CliRunner().invoke(app, words)
    assert found.exit_code in (0, 2), f"{namespace}: {found.output}"
    return json.loads(found.stdout)["jobs"][0]


def _decided(one: _Placed, lists: Mapping[str, Sequence[Json]], after: Mapping[str, Json], watched: Watched) -> Decided:
    assert one.case.name not in watched.preempts_in_circles, f"{one.case.name} did not come to rest"
    of_case = {plural: [each for each in items if one.owns(each)] for plural, items in lists.items()}
    owned = [each for each in after.values() if one.owns(each)]
    (found,) = [each for each in owned if _is_of(each, one.place(one.case.next))]
    job = f"{one.case.name}/{one.case.next['metadata']['name']}"
    pushed = watched.pushed.get(found["metadata"]["uid"], {})
    preempted = {name_of(after[name]): reason for name, reason in pushed.items()}
    return Decided(
        case=one.case.name,
        digest=digest_of(one.case),
        objects=one.plain(dict[str, list[Json]], {plural: list(map(_short, of_case[plural])) for plural in of_case}),
        seen=one.plain(Seen, see(found, preempted).model_dump()),
        runs=tuple(sorted(job if each is found else name_of(each) for each in owned if is_true(each, "QuotaReserved"))),
    )


def _is_of(workload: Json, job: Json) -> bool:
    """Whether it is the workload of a job, or itself that job."""
    about = workload["metadata"]
    owners = about.get("ownerReferences", [{"kind": "Workload", "name": about["name"]}])
    names = [(about["namespace"], each["kind"], each["name"]) for each in owners]
    return names == [(job["metadata"]["namespace"], job["kind"], job["metadata"]["name"])]


def _short(found: Json) -> Json:
    """Return an object without what nothing reads."""
    metadata = {key: each for key, each in found["metadata"].items() if key not in _UNINTERESTING}
    return {key: each for key, each in {**found, "metadata": metadata}.items() if key not in ("apiVersion", "kind")}
