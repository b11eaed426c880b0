"""The rendered JobSet: what each setting changes in it, and the consequence of each way to end."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from infra.stack.jobset import render
from infra.stack.settings.read import parse
from infra.stack.settings.values import HIDDEN
from infra.stack.submission import submission
from tests.infra.difference import fields
from tests.infra.job_failure import action
from tests.infra.one_job import submitted
from tests.infra.recording import ROOT, Values
from tests.infra.stack.settings.test_containers import rendered, with_container
from tests.infra.stack.test_pathways import on_one_host, stack_with
from tests.infra.stack.test_pathways import rendered as by_pathways
from tests.infra.stack.test_submitted import call
from tests.infra.test_golden import dumped, unfolded
from workloads.spec import ExitCode

FLEX = {"kind": "flex-start", "max_run_hours": 24}
QUEUED = {"kind": "queued", "max_run_hours": 2}


def with_capacities(values: Values, *capacities: object, slices: int = 2) -> Values:
    """A job that falls back from one group of equal slices to the next: first, second and so on."""
    names = ["first", "second", "third"][: len(capacities)]
    of_group = dict(zip(names, capacities, strict=True))
    values["slices"] = {
        name: {**values["slices"]["trillium"], "capacity": capacity} for name, capacity in of_group.items()
    }
    values["teams"]["research"]["quota"] = dict.fromkeys(names, 16)
    values["job"]["slices"] = {"group": names[0], "fallback": names[1:], "count": slices}
    return values


type Build = Callable[[Values], Any]

TRAINER = f"us-east5-docker.pkg.dev/my-project/multislice-dev/trainer@sha256:{'3' * 64}"
_COMPILER: Values = {
    "compile": "quick",
    "compiler_options": {"xla_tpu_scoped_vmem_limit_kib": 65536, "xla_tpu_enable_async_collective_fusion": None},
    "libtpu_args": {"megascale_debug_port": 8081},
}
_OPTIMIZER: Values = {
    "optimizer": {"kind": "muon", "momentum": 0.9, "skip_norm": 20.0, "learning_rate": 0.001},
    "allow_changes": ["optimizer.learning_rate"],
    "training": {"z_loss": 1e-4},
}
_MODEL: Values = {
    "model": {"layers": 4, "activation": "gelu", "windows": {"size": 16, "pattern": ["local", "global"]}},
    "mesh": {"replica": 2, "stage": 2, "fsdp": 2, "tensor": 2},
    "slices": {"group": "trillium", "count": 2, "min_count": 1},
    "training": {"gather_weights": "each-step"},
    "initial_weights": "gs://bucket/weights",
}
_TRACKERS = {"tensorboard": True, "wandb": {"project": "llm"}}
_FILE = {"file": "/tmp/alive", "silence_seconds": 60}
_VOLUMES = {"cache": {"path": "/a", "size_gib": 20}, "ram": {"path": "/b", "size_gib": 4, "medium": "memory"}}
_ENV = {"PJRT_DEVICE": "CPU", "JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": "gs://ours/compiled"}


def _trainer(values: Values, **changes: object) -> Any:
    values["job"] |= changes
    return render(submitted(values))


def _on(*capacities: object) -> Build:
    return lambda values: render(submitted(with_capacities(values, *capacities, slices=1)))


def _on_one_host(values: Values) -> Any:
    values["slices"]["trillium"]["topology"] = "2x2"
    values["teams"]["research"]["quota"]["trillium"] = 8
    return _trainer(values, slices={"group": "trillium", "count": 1})


def _checked(values: Values) -> Any:
    settings = parse(with_container(values, check_slices=True) | {"image": {"reference": TRAINER}})
    return render(submission(settings, settings.jobs["serve"], TRAINER))


def _container(**changes: object) -> Build:
    return lambda values: rendered(values, **changes)


def _flexible(stack: Values) -> Values:
    stack["slices"]["trillium"]["capacity"] = FLEX
    return stack


OF_TRAINER: Mapping[str, Build] = {
    "saves on its hosts": lambda values: _trainer(values, training={"local_save_every_steps": 1}),
    "compiled programs in the bucket": lambda values: _trainer(values, compile_cache="bucket"),
    "compiler": lambda values: _trainer(values, **_COMPILER),
    "optimizer of its own": lambda values: _trainer(values, **_OPTIMIZER),
    "decoder, mesh and weights of its own": lambda values: _trainer(values, **_MODEL),
    "trackers": lambda values: _trainer(values | {"secrets": {"WANDB_API_KEY": HIDDEN}}, trackers=_TRACKERS),
    "limit of hours": lambda values: _trainer(values, max_hours=0.0001),
    "rights": lambda values: _trainer(values, run_as_user=1000, privileged=True),
    "slices of one host": _on_one_host,
    "on demand, then queued": _on("on-demand", QUEUED),
    "spot, then flex-start": _on("spot", FLEX),
    "flex-start": _on(FLEX),
    "queued alone": _on(QUEUED, QUEUED),
    "the shortest of two queued runs": _on("spot", {**QUEUED, "max_run_hours": 3}, QUEUED),
    "topology-aware": lambda values: _trainer(values | {"scheduling": {"placement": "topology-aware"}}),
    "a call": call,
}
OF_CONTAINER: Mapping[str, Build] = {
    "its own variables": _container(env=_ENV),
    "entry point of the image": _container(command=[], args=[]),
    "another user": _container(run_as_user=1000),
    "root": _container(run_as_user=0),
    "privileged": _container(privileged=True),
    "vCPUs": _container(resources={"vcpus": 8}),
    "volumes": _container(volumes=_VOLUMES),
    "heartbeat by connection": _container(heartbeat={"port": "http", "silence_seconds": 95, "start_minutes": 5}),
    "heartbeat by request": _container(heartbeat={"port": "http", "path": "/healthz", "silence_seconds": 60}),
    "heartbeat by file and records": _container(heartbeat=_FILE, records=True),
    "check of slices": _checked,
}
OF_CALL: Mapping[str, Build] = {
    "rights": lambda values: call(values | {"functions": {"run_as_user": 0, "privileged": True}}),
    "limit of hours": lambda values: call(values, max_hours=2),
}
BY_PATHWAYS: Mapping[str, Build] = {
    "flex-start": lambda values: by_pathways(_flexible(stack_with(values))),
    "flex-start on one host": lambda values: by_pathways(_flexible(on_one_host(values))),
}


def _by_name(value: Any) -> Any:
    """The manifest with its variables by name, so that a variable among others is one difference."""
    if isinstance(value, list):
        return [_by_name(each) for each in value]
    if not isinstance(value, dict):
        return value
    named = {key: {each["name"]: each for each in found} if key == "env" else found for key, found in value.items()}
    return {key: _by_name(found) for key, found in named.items()}


def test_what_a_setting_changes_in_the_jobset_is_what_the_golden_file_says(
    values: Values, accepted_golden: Any
) -> None:
    """The golden files of the stacks and of the other jobs have the JobSets that these differ from."""

    def changed(base: Build, variants: Mapping[str, Build]) -> Values:
        plain = _by_name(unfolded(base(deepcopy(values))))
        return {name: fields(plain, _by_name(unfolded(build(deepcopy(values))))) for name, build in variants.items()}

    found = {
        "trainer": changed(_trainer, OF_TRAINER),
        "call": changed(call, OF_CALL),
        "container": changed(rendered, OF_CONTAINER),
        "pathways": changed(lambda values: by_pathways(stack_with(values)), BY_PATHWAYS),
    }
    accepted_golden(ROOT / "tests" / "golden" / "jobs" / "settings.yaml", dumped(found))


ACTIONS = {
    ExitCode.CRASH: "RestartJob",
    ExitCode.PEER_LOST: "RestartJob",
    ExitCode.HANG: "RestartJobSet",
    ExitCode.SILENT_DAMAGE: "RestartJob",
    ExitCode.INVALID_SPEC: "FailJobSet",
    ExitCode.OUT_OF_MEMORY: "FailJobSet",
    ExitCode.DIVERGED: "FailJobSet",
    ExitCode.NO_CHECKPOINT: "FailJobSet",
    ExitCode.FUNCTION_RAISED: "FailJobSet",
    ExitCode.RESTARTS_USED_UP: "FailJobSet",
    ExitCode.BAD_HOST: "RestartJobSetAndIgnoreMaxRestarts",
    ExitCode.PREEMPTED: "RestartJobAndIgnoreMaxRestarts",
}
"""Where JobSet can restart one slice."""


def test_every_exit_code_has_an_action() -> None:
    assert set(ACTIONS) == set(ExitCode) - {ExitCode.DONE}


@pytest.mark.parametrize(
    ("code", "disrupted", "expected"),
    [
        *((code, False, action) for code, action in ACTIONS.items()),
        # A similar exit code is not mistaken for another.
        (200, False, "RestartJob"),
        *((code, True, "RestartJobAndIgnoreMaxRestarts") for code in (1, 137, 143)),
        (ExitCode.INVALID_SPEC, True, "FailJobSet"),
        # The pod never ran its program, because its node refused it.
        (None, False, "RestartJobAndIgnoreMaxRestarts"),
    ],
)
def test_an_exit_code_leads_to_its_action(values: Values, code: int | None, disrupted: bool, expected: str) -> None:
    with_gate = submitted(values)
    assert action(render(with_gate), code, disrupted=disrupted) == expected
    # A JobSet of others lacks the gate.
    for_all = expected.replace("RestartJobAnd", "RestartJobSetAnd") if expected != "RestartJob" else "RestartJobSet"
    without_gate = replace(with_gate, fleet=replace(with_gate.fleet, restarts_slices=False))
    assert action(render(without_gate), code, disrupted=disrupted) == for_all


@pytest.mark.parametrize(
    ("code", "records", "expected"),
    [
        (ExitCode.DIVERGED, True, "FailJobSet"),
        (ExitCode.PREEMPTED, True, "RestartJobSetAndIgnoreMaxRestarts"),
        # The nodes of a bad host are marked only by the trainer.
        (ExitCode.BAD_HOST, True, "RestartJobSet"),
        (ExitCode.CRASH, True, "RestartJobSet"),
        (ExitCode.DIVERGED, False, "RestartJobSet"),
        (ExitCode.PREEMPTED, False, "RestartJobSet"),
    ],
)
def test_exit_codes_of_a_program_have_their_meaning_only_with_records(
    values: Values, code: int, records: bool, expected: str
) -> None:
    assert action(rendered(values, records=records), code) == expected
    assert action(rendered(values, records=records), code, disrupted=True) == (
        expected if expected == "FailJobSet" else "RestartJobSetAndIgnoreMaxRestarts"
    )
