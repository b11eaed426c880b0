"""Stack files: what is refused, in which words, and what every accepted one guarantees."""

from collections.abc import Callable
from typing import get_args

import pulumi
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from pulumi import runtime

from infra import cluster_queues
from infra.jobs import Priority
from infra.settings import SettingsError, load, parse
from tests.infra.legal_values import legal_values
from tests.infra.one_job import only_group, only_job, only_spec, only_team
from tests.infra.recording import Values
from workloads.spec import load_preset

type Spoil = Callable[[Values], object]


def _set(path: str, value: object) -> Spoil:
    *parents, last = path.split(".")

    def spoil(values: Values) -> None:
        for parent in parents:
            values = values[parent]
        values[last] = value

    return spoil


def _remove(path: str) -> Spoil:
    *parents, last = path.split(".")

    def spoil(values: Values) -> None:
        for parent in parents:
            values = values[parent]
        del values[last]

    return spoil


_OTHER_TEAM = {"namespace": "research", "quota": {"trillium": 0}}
_LITE = {"generation": "v6e", "topology": "2x4", "count": 1, "capacity": "spot"}

_CPUS = "a machine type of Compute Engine without accelerators, such as e2-standard-4"
_FAULTS: list[tuple[Spoil, str, str]] = [
    (_remove("cloud"), "cloud", "a value, got nothing; add cloud to the stack file"),
    (_remove("job.preset"), "job.preset", "a value, got nothing; add job.preset to the stack file"),
    (
        _set("clouds", {}),
        "clouds",
        "scheduling, secrets, slices, teams, got 'clouds'; rename it to cloud",
    ),
    (_set("slices.trillium.topolgy", "2x4"), "slices.trillium.topolgy", "got 'topolgy'; rename it to topology"),
    (
        _set("job.slices.grup", "a"),
        "job.slices.grup",
        "one of the keys count, fallback, group, min_count, got 'grup'; rename it to group",
    ),
    (_set("job.mesh", {"replica": 2, "fsdp": 8, "zebra": 1}), "job.mesh.zebra", "got 'zebra'; remove it"),
    (_set("job", "tiny"), "job", "got 'tiny'; change job in the stack file"),
    (_set("cloud.zone", "us-east1-b"), "cloud.zone", "a zone of us-east5, such as us-east5-b, got 'us-east1-b'"),
    (_set("cluster.name", "a-very-very-long-name"), "cluster.name", "a name of at most 20 lower-case letters, digits"),
    (_set("cluster.system_machine_type", "banana"), "cluster.system_machine_type", _CPUS),
    (_set("cluster.system_machine_type", "ct6e-standard-4t"), "cluster.system_machine_type", _CPUS),
    (_set("slices", {}), "slices", "at least one entry by name, got {}; add one to slices"),
    (_set("slices.Lite", _LITE), "slices.Lite", "a name of at most 30 lower-case letters"),
    (
        _set("slices.trillium.topology", "3x3"),
        "slices.trillium",
        "got v6e 3x3; '3x3' is not a topology of v6e; the nearest are 2x4",
    ),
    (
        _set("slices.trillium.machine_type", "ct6e-standard-1t"),
        "slices.trillium",
        "got v6e 2x4 ct6e-standard-1t; '2x4' is not",
    ),
    (_set("slices.trillium.count", 0), "slices.trillium.count", "greater than 0, got 0; raise it"),
    (
        _set("slices.trillium.capacity", "free"),
        "slices.trillium.capacity",
        "'on-demand', 'spot', 'reservation', 'flex-start', 'queued', got 'free'",
    ),
    (_set("teams.research.quota.ironwood", 8), "teams.research.quota", "slice groups among trillium, got 'ironwood'"),
    (
        _set("teams.research.quota.trillium", 12),
        "teams.research.quota.trillium",
        "at least the 16 chips of job tiny, got 12; raise it to 16",
    ),
    (
        _set("teams.research.quota.trillium", 17),
        "teams",
        "quotas of trillium that add up to at most its 16 chips, got 17; lower a",
    ),
    (_set("teams.other", _OTHER_TEAM), "teams.other.namespace", "got 'research'; team research has it already"),
    (
        _set("teams.research.namespace", "kueue-system"),
        "teams.research.namespace",
        "a namespace of the team's own, got 'kueue",
    ),
    (
        _set("image.reference", "trainer:latest"),
        "image.reference",
        "an image by digest, REPOSITORY@sha256:<64 hexadecimal digits>",
    ),
    (_set("image", {}), "image", "either reference (an image by digest) or build: true, got {}"),
    (_set("image.build", True), "image", "either reference (an image by digest) or build: true"),
    (_set("datasets", {"bucket": "gs://text"}), "datasets.bucket", "the name of a bucket, without gs://"),
    (_set("datasets", {}), "datasets.bucket", "a value, got nothing; add datasets.bucket to the stack file"),
    (_set("job.team", "sales"), "job.team", "one of the teams research, got 'sales'; rename it or add the team"),
    (
        _set("job.slices.group", "ironwood"),
        "job.slices.group",
        "one of the slice groups trillium, got 'ironwood'; rename it or add",
    ),
    (
        _set("job.slices.count", 3),
        "job.slices.count",
        "at most the 2 slices of trillium, got 3; lower it or raise slices.trillium.count",
    ),
    (_set("job.slices.min_count", 3), "job", "slices.min_count must be at most slices.count (2), got 3"),
    (
        _set("slices.trillium.topology", "2x2"),
        "job.slices.count",
        "1, since a 2x2 of ct6e-standard-4t has one host and GKE joins",
    ),
    (_set("job.name", "x" * 27), "job.name", "a name of at most 26 lower-case letters"),
    (_set("job.slices.fallback", ["ironwood"]), "job.slices.fallback", "groups trillium, got 'ironwood'; rename it or"),
    (
        _set("job.slices.fallback", ["trillium"]),
        "job.slices.fallback",
        "each group once, and not job.slices.group, got",
    ),
    (_set("job.max_hours", 9000), "job.max_hours", "less than or equal to 8760, got 9000"),
    (_set("job.preset", "huge"), "job.preset", "mixtral-8x7b, tiny, got 'huge'; rename it"),
    (_set("job.training", {"steps": 0}), "job.training.steps", "greater than 0, got 0"),
    (_set("job.training", {"stepz": 5}), "job.training.stepz", "got 'stepz'; rename it to steps"),
    (_set("job.data", {"path": "gs://b/t"}), "job.data.source", "add job.data.source to the stack file"),
    (_set("job.data", {"source": "token-file", "pth": "x"}), "job.data.pth", "rename it to path"),
    (_set("job.training", {"global_batch": 10}), "job", "training.global_batch must be a multiple of"),
    (
        _set("job.mesh", {"replica": 2, "fsdp": 4}),
        "job",
        "mesh replica 2 x fsdp 4 must be the 16 devices of 2 slices of 8 devices, got 8; nearest that fit: replica 2 x"
        " fsdp 8, or replica 4 x fsdp 4, or replica 2 x fsdp 4 x tensor 2; change job.slices, job.mesh,",
    ),
    (_set("job.mesh", {"replica": 1, "fsdp": 16}), "job", "fsdp x tensor must divide the 8 devices of a slice"),
    (_set("job.slices.min_count", 3), "job", "slices.min_count must be at most slices.count (2), got 3; change"),
    (_set("job.preset", "llama-3.2-1b"), "job.data", "llama-3.2-1b has no data of its own, got nothing; add job.data"),
    (_set("job.priority", "urgent"), "job.priority", "'low', 'normal' or 'high', got 'urgent'"),
    (_set("job.max_restarts", -1), "job.max_restarts", "greater than or equal to 0, got -1"),
]


@pytest.mark.parametrize(
    ("spoil", "path", "words"), _FAULTS, ids=[f"{path}-{words[:12]}" for _, path, words in _FAULTS]
)
def test_a_fault_says_where_what_was_expected_what_came_and_what_to_do(
    values: Values, spoil: Spoil, path: str, words: str
) -> None:
    spoil(values)
    with pytest.raises(SettingsError) as raised:
        parse(values)
    told = [str(fault) for fault in raised.value.faults if fault.path == path]
    assert any(words in line for line in told), raised.value


_MEANT: list[tuple[Spoil, str, str]] = [
    (_set("clouds", {}), "clouds", "cloud"),
    (_set("slices.trillium.topolgy", "2x4"), "slices.trillium.topolgy", "topology"),
    (_set("job.trainng", {}), "job.trainng", "training"),
    (_set("slices.trillium.topology", "2X4"), "slices.trillium", "topology: 2x4"),
    (_set("slices.trillium.topology", "16"), "slices.trillium", "topology: 4x4"),
    (_set("slices.trillium.topology", 16), "slices.trillium", "topology: 4x4"),
    (_set("slices.trillium.topology", "v6e-16"), "slices.trillium", "topology: 4x4"),
    (
        _set("slices.trillium", {"generation": "v5p-128", "topology": "", "count": 1, "capacity": "spot"}),
        "slices.trillium",
        "generation: v5p, topology: 4x4x4",
    ),
    (_set("slices.trillium.generation", "trillium"), "slices.trillium", "generation: v6e"),
    (_set("slices.trillium.generation", "v5litepod"), "slices.trillium", "generation: v5e"),
    (_set("slices.trillium.generation", "V6E"), "slices.trillium", "generation: v6e"),
    (_set("slices.trillium.capacity", "Spot"), "slices.trillium.capacity", "spot"),
    (_set("slices.trillium.capacity", "preemptible"), "slices.trillium.capacity", "spot"),
    (_set("slices.trillium.capacity", {"kind": "preemptible"}), "slices.trillium.capacity", "spot"),
    (_set("slices.trillium.capacity", "regular"), "slices.trillium.capacity", "on-demand"),
    (_set("slices.trillium.capacity", "on_demand"), "slices.trillium.capacity", "on-demand"),
    (_set("slices.trillium.capacity", "reserved"), "slices.trillium.capacity", "reservation"),
    (_set("cluster.release_channel", "regular"), "cluster.release_channel", "REGULAR"),
    (_set("job.preset", "llama-3-8b"), "job.preset", "llama-3.1-8b"),
    (_set("job.team", "reserch"), "job.team", "research"),
    (_set("job.slices.group", "trilium"), "job.slices.group", "trillium"),
    (_set("teams.research.quota.trilium", 0), "teams.research.quota", "trillium"),
]


@pytest.mark.parametrize(("spoil", "path", "meant"), _MEANT, ids=[f"{path}-{meant}" for _, path, meant in _MEANT])
def test_what_was_probably_meant_comes_first_and_once(values: Values, spoil: Spoil, path: str, meant: str) -> None:
    spoil(values)
    with pytest.raises(SettingsError) as raised:
        parse(values)
    (told,) = (str(fault) for fault in raised.value.faults if fault.path == path)
    assert told.startswith(f"{path}: did you mean {meant}?")


@pytest.mark.parametrize("section", ["cloud", "cluster", "slices", "teams", "image", "job"])
def test_a_misspelt_section_is_one_fault(values: Values, section: str) -> None:
    values[f"{section}x"] = values.pop(section)
    with pytest.raises(SettingsError) as raised:
        parse(values)
    assert [fault.path for fault in raised.value.faults] == [f"{section}x"]


@pytest.mark.parametrize("path", ["slices.trillium.topology", "job.preset", "job.slices.group", "cloud.zone"])
def test_a_misspelt_key_is_not_told_as_a_missing_one_too(values: Values, path: str) -> None:
    *parents, key = path.split(".")
    section = values
    for parent in parents:
        section = section[parent]
    section[f"{key}x"] = section.pop(key)
    with pytest.raises(SettingsError) as raised:
        parse(values)
    assert [fault.path for fault in raised.value.faults] == [f"{path}x"]


_NUMBERS: list[tuple[Spoil, str, str]] = [
    (_set("slices.trillium.count", True), "slices.trillium.count", "got true"),
    (_set("slices.trillium.count", "2"), "slices.trillium.count", "write 2 without quotation marks"),
    (_set("slices.trillium.count", 2.5), "slices.trillium.count", "a whole number"),
    (_set("teams.research.quota.trillium", True), "teams.research.quota.trillium.chips", "got true"),
    (_set("job.max_restarts", "3"), "job.max_restarts", "write 3 without quotation marks"),
    (_set("job.max_hours", "24"), "job.max_hours", "write 24 without quotation marks"),
    (_set("job.max_hours", True), "job.max_hours", "a number"),
    (_set("job.training", {"steps": True}), "job.training.steps", "a whole number"),
    (_set("job.training", {"steps": "1e9"}), "job.training.steps", "write 1000000000"),
    (_set("budget", {"usd_per_hour": "10"}), "budget.usd_per_hour", "write 10 without quotation marks"),
    (_set("prices", {"usd_per_chip_hour": {"trillium": True}}), "prices.usd_per_chip_hour.trillium", "a number"),
]


@pytest.mark.parametrize(("spoil", "path", "words"), _NUMBERS, ids=[words for *_, words in _NUMBERS])
def test_what_is_no_number_does_not_pass_for_one(values: Values, spoil: Spoil, path: str, words: str) -> None:
    spoil(values)
    with pytest.raises(SettingsError) as raised:
        parse(values)
    (told,) = (str(fault) for fault in raised.value.faults if fault.path == path)
    assert words in told


_CONTAINER = {
    "kind": "container",
    "team": "research",
    "slices": {"group": "trillium", "count": 1},
    "priority": "low",
    "max_restarts": 0,
    "image": f"tools@sha256:{'1' * 64}",
}
_RAW: list[tuple[Spoil, str, str]] = [
    (_set("job.mesh", "2x8"), "job.mesh", "a mapping of keys to values"),
    (_set("cluster.name", 7), "cluster.name", "put it in quotation marks: '7'"),
    (_set("image", {"build": False}), "image.build", "true, got false"),
    (_set("job.secrets", "TOKEN"), "job.secrets", "write it as a list: [TOKEN]"),
    (_set("budget", {"expires_on": "31.12.2027"}), "budget.expires_on", "YYYY-MM-DD"),
    (_set("budget", {"expires_on": "12/31/2027"}), "budget.expires_on", "YYYY-MM-DD"),
    (_set("budget", {"expires_on": 20271231}), "budget.expires_on", "YYYY-MM-DD"),
    (_set("slices", [_LITE]), "slices", "a mapping"),
    (_set("cluster.deletion_protection", "on off"), "cluster.deletion_protection", "true or false"),
]


@pytest.mark.parametrize(("spoil", "path", "words"), _RAW, ids=[f"{path}-{words[:9]}" for _, path, words in _RAW])
def test_a_value_of_another_kind_is_answered_in_the_words_of_a_stack_file(
    values: Values, spoil: Spoil, path: str, words: str
) -> None:
    spoil(values)
    with pytest.raises(SettingsError) as raised:
        parse(values)
    (told,) = (str(fault) for fault in raised.value.faults if fault.path == path)
    assert words in told
    assert not {"tuple", "dictionary", "instance", "string", "integer"} & set(told.replace(",", " ").split()), told


@pytest.mark.parametrize(
    ("spoil", "path", "words"),
    [
        (_set("env", {"N": 3}), "jobs.probe.env.N", "put it in quotation marks: '3'"),
        (_set("command", "python x"), "jobs.probe.command", "write it as a list: [python, x]"),
    ],
)
def test_words_of_a_container_are_quoted_and_listed(values: Values, spoil: Spoil, path: str, words: str) -> None:
    job: Values = dict(_CONTAINER)
    spoil(job)
    values["jobs"] = {"probe": job}
    del values["job"]
    with pytest.raises(SettingsError) as raised:
        parse(values)
    (told,) = (str(fault) for fault in raised.value.faults if fault.path == path)
    assert words in told


def test_jobs_in_a_list_are_told_that_they_need_names(values: Values) -> None:
    values["jobs"] = [values.pop("job")]
    with pytest.raises(SettingsError) as raised:
        parse(values)
    (told,) = (str(fault) for fault in raised.value.faults if fault.path == "jobs")
    assert "a mapping" in told
    assert len(told) < 300


def test_a_count_that_nobody_has_is_not_answered_with_a_range_of_addresses(values: Values) -> None:
    _set("slices.trillium.count", 10**30)(values)
    with pytest.raises(SettingsError) as raised:
        parse(values)
    (told,) = (str(fault) for fault in raised.value.faults if fault.path == "slices.trillium.count")
    assert "lower it" in told
    assert "/-" not in str(raised.value)


@pytest.mark.parametrize("machine", ["n2-standard-64", "e2-medium", "n2d-custom-8-16384", "c3-highcpu-22-lssd"])
def test_machine_types_of_cpus_are_accepted_for_the_system_nodes(values: Values, machine: str) -> None:
    _set("cluster.system_machine_type", machine)(values)
    assert parse(values).cluster.system_machine_type == machine


def test_all_faults_are_reported_at_once(values: Values) -> None:
    _set("cloud.zone", "mars")(values)
    _set("slices.trillium.topology", "3x3")(values)
    _set("job.preset", "huge")(values)
    _set("job.team", "sales")(values)
    _remove("image.reference")(values)
    with pytest.raises(SettingsError, match="have 5 fault") as raised:
        parse(values)
    paths = {fault.path for fault in raised.value.faults}
    assert paths == {"cloud.zone", "slices.trillium", "job.preset", "job.team", "image"}


def test_a_fault_in_a_section_does_not_hide_what_else_is_wrong_with_it(values: Values) -> None:
    _set("slices.trillium.topology", "3x3")(values)
    _set("slices.trillium.count", 0)(values)
    _set("job.slices", {"group": "ironwood", "count": 0})(values)
    _set("job.preset", "huge")(values)
    _set("job.colour", "red")(values)
    with pytest.raises(SettingsError) as raised:
        parse(values)
    paths = {fault.path for fault in raised.value.faults}
    assert paths == {
        "slices.trillium",
        "slices.trillium.count",
        "job.slices.group",
        "job.slices.count",
        "job.preset",
        "job.colour",
    }


def test_a_misspelt_key_does_not_hide_that_the_quota_is_too_small(values: Values) -> None:
    _set("job.colour", "red")(values)
    _set("teams.research.quota", {"trillium": 8})(values)
    with pytest.raises(SettingsError) as raised:
        parse(values)
    assert {fault.path for fault in raised.value.faults} == {"job.colour", "teams.research.quota.trillium"}


def test_a_group_with_a_fault_is_still_a_group_that_a_job_may_name(values: Values) -> None:
    _set("slices.trillium.count", "many")(values)
    with pytest.raises(SettingsError) as raised:
        parse(values)
    assert [fault.path for fault in raised.value.faults] == ["slices.trillium.count"]


def test_an_empty_stack_file_lacks_every_section() -> None:
    with pytest.raises(SettingsError) as raised:
        parse({})
    assert {fault.path for fault in raised.value.faults} == {"cloud", "cluster", "slices", "teams", "image", "jobs"}


def test_a_plain_value_where_a_section_belongs_is_a_fault_of_its_own() -> None:
    runtime.set_all_config({"tpu-multislice:job": "tiny", "other:key": "ignored"}, [])
    with pytest.raises(SettingsError, match="job: expected .*, got 'tiny'"):
        load(pulumi.Config("tpu-multislice"))


def test_the_mesh_follows_from_the_slices_when_the_stack_file_names_none(values: Values) -> None:
    mesh = only_spec(parse(values)).mesh
    assert (mesh.replica, mesh.fsdp) == (2, 8)


def test_kueue_tries_the_jobs_groups_in_the_order_that_the_job_names(values: Values) -> None:
    trillium = values["slices"]["trillium"]
    values["slices"] |= {"a-spare": trillium, "b-other": trillium}
    values["teams"]["research"]["quota"] = {"a-spare": 16, "b-other": 16, "trillium": 16}
    _set("job.slices.fallback", ["a-spare"])(values)
    assert list(only_team(parse(values)).quota) == ["trillium", "a-spare", "b-other"]


def test_the_stack_files_values_win_over_the_presets(values: Values) -> None:
    _set("job.training", {"steps": 7})(values)
    training = only_spec(parse(values)).training
    assert training == load_preset("tiny").training.model_copy(update={"steps": 7})


def test_a_job_without_data_is_told_of_its_sizes_as_well(values: Values) -> None:
    values["job"] |= {"preset": "llama-3.2-1b", "training": {"global_batch": 10}}
    with pytest.raises(SettingsError) as raised:
        parse(values)
    assert {fault.path for fault in raised.value.faults} == {"job.data", "job"}


def test_what_the_stack_file_says_of_slices_mesh_and_weights_reaches_the_trainer(values: Values) -> None:
    mesh = {"replica": 2, "stage": 2, "fsdp": 2, "tensor": 2}
    values["job"] |= {"initial_weights": "gs://bucket/weights", "mesh": mesh}
    values["job"]["slices"] |= {"min_count": 1}
    values["job"]["training"] = {"gather_weights": "each-step"}
    spec = only_spec(parse(values))
    assert (spec.initial_weights, spec.mesh.sizes, spec.slices.min_count) == ("gs://bucket/weights", mesh, 1)


def test_every_priority_that_a_job_may_have_is_declared() -> None:
    assert set(get_args(Priority)) == set(cluster_queues.PRIORITIES)


@hypothesis_settings(deadline=None)
@given(legal_values())
def test_every_accepted_stack_file_keeps_the_limits_of_google_cloud_and_kubernetes(values: Values) -> None:
    accepted = parse(values)
    (group_name,) = accepted.slices
    spec = only_spec(accepted)
    first_pod = f"{spec.name}-slice-0-0"
    last_job = f"{spec.name}-slice-{spec.slices.count - 1}"
    last_pod = f"{last_job}-{spec.slices.hosts - 1}-abcde"
    coordinator = f"{first_pod}.{spec.name}"
    workload = f"jobset-{spec.name}-abcde"
    assert max(map(len, (spec.name, last_job, last_pod, coordinator, workload))) <= 63
    assert len(f"{group_name}-{only_group(accepted).count - 1}") <= 40
    assert len(accepted.checkpoint_bucket) <= 63
    assert 6 <= len(f"{accepted.cluster.name}-nodes") <= 30


@hypothesis_settings(deadline=None)
@given(legal_values())
def test_every_accepted_job_fits_its_teams_quota_and_its_mesh(values: Values) -> None:
    accepted = parse(values)
    spec = only_spec(accepted)
    assert (
        spec.slices.count * spec.slices.hosts * spec.slices.chips_per_host
        <= only_team(accepted).quota[only_job(accepted).slices.group].chips
    )
    assert spec.mesh.replica * spec.mesh.fsdp == spec.slices.devices
