"""Errors of a stack file say where, what was expected and what to do."""

import pytest

from tests.infra.one_job import unnamed
from tests.infra.recording import Values
from tests.infra.spoiling import Spoil, errors_of, put, remove

_LITE = {"generation": "v6e", "topology": "2x4", "count": 1, "capacity": "spot"}
_MEANT: list[tuple[Spoil, str, str]] = [
    (put("clouds", {}), "clouds", "cloud"),
    (put("slices.trillium.topolgy", "2x4"), "slices.trillium.topolgy", "topology"),
    (put("slices.trillium.capacity", "Spot"), "slices.trillium.capacity", "spot"),
    (put("slices.trillium.capacity", "preemptible"), "slices.trillium.capacity", "spot"),
    (put("slices.trillium.capacity", "reserved"), "slices.trillium.capacity", "{kind: reservation, name: NAME}"),
    (put("slices.trillium.capacity", "dws"), "slices.trillium.capacity", "{kind: flex-start, max_run_hours: HOURS}"),
    (put("cluster.release_channel", "regular"), "cluster.release_channel", "REGULAR"),
    (put("job.preset", "llama-3-8b"), "job.preset", "llama-3.1-8b"),
    (put("job.team", "reserch"), "job.team", "research"),
    (put("job.slices.group", "trilium"), "job.slices.group", "trillium"),
    (put("teams.research.quota.trilium", 0), "teams.research.quota", "trillium"),
]


@pytest.mark.parametrize(("spoil", "path", "meant"), _MEANT, ids=[f"{path}-{meant}" for _, path, meant in _MEANT])
def test_what_was_probably_meant_comes_first_and_once(values: Values, spoil: Spoil, path: str, meant: str) -> None:
    spoil(values)
    text = errors_of(values)[path]
    assert text.startswith(f"{path}: did you mean {meant}?")
    assert "\n" not in text


@pytest.mark.parametrize("name", ["Tiny", "t" * 60])
def test_a_wrong_name_of_a_job_hides_no_other_error_of_it(values: Values, name: str) -> None:
    put("job.slices.count", 3)(values)
    shown = errors_of(values).keys()
    put("job.name", name)(values)
    assert errors_of(values).keys() == {*shown, "job.name"}
    values["jobs"] = {name: unnamed(values), "tiny": "nothing"}
    assert errors_of(values).keys() >= {path.replace("job", f"jobs.{name}") for path in shown} | {f"jobs.{name}"}


def test_the_keys_that_a_job_must_have_are_those_without_a_default(values: Values) -> None:
    values["jobs"] = {"tiny": unnamed(values), "other": "nothing", "program": {"kind": "contaner"}}
    found = errors_of(values)
    assert found["jobs.other"].endswith("write other: {slices: ..., preset: ...}")
    assert found["jobs.program.kind"].endswith("write container")


@pytest.mark.parametrize(
    "path",
    [
        *("cloud", "cluster", "slices", "teams", "image", "job"),
        *("slices.trillium.topology", "job.preset", "job.slices.group", "cloud.zone"),
    ],
)
def test_a_misspelt_name_is_not_also_reported_as_missing(values: Values, path: str) -> None:
    put(f"{path}x", remove(path)(values))(values)
    assert errors_of(values).keys() == {f"{path}x"}


@pytest.mark.parametrize(("generation", "topology"), [("v6e", "v5e-16"), ("v6e-16", "v6e-32")])
def test_names_of_a_slice_that_contradict_each_other_are_refused(
    values: Values, generation: str, topology: str
) -> None:
    put("slices.trillium", {**_LITE, "generation": generation, "topology": topology})(values)
    assert "a slice that GKE offers" in errors_of(values)["slices.trillium"]


_OTHER_KINDS: list[tuple[Spoil, str, str]] = [
    (put("slices.trillium.count", "2"), "slices.trillium.count", "write 2 without quotation marks"),
    (put("slices.trillium.count", 2.5), "slices.trillium.count", "a whole number"),
    (put("teams.research.quota.trillium", True), "teams.research.quota.trillium.chips", "got true"),
    (put("job.max_hours", "24"), "job.max_hours", "write 24 without quotation marks"),
    (put("slices.trillium.count", "2.5"), "slices.trillium.count", "write a whole number, such as 16"),
    (put("job.max_hours", "inf"), "job.max_hours", "write a number, such as 0.5"),
    (put("job.training", {"steps": "1e9"}), "job.training.steps", "write 1000000000"),
    (put("job.mesh", "2x8"), "job.mesh", "a mapping of keys to values"),
    (put("cluster.name", 7), "cluster.name", "put it in quotation marks: '7'"),
    (put("image", {"build": False}), "image.build", "true, got false"),
    (put("job.secrets", "ONE, TWO"), "job.secrets", "write it as a list: [ONE, TWO]"),
    (put("budget", {"expires_on": "31.12.2027"}), "budget.expires_on", "YYYY-MM-DD"),
    (put("slices", [_LITE]), "slices", "a mapping"),
    (put("budget", {"alerts": {"at_percent": []}}), "budget.alerts.at_percent", "at least 1 entry, got []"),
    (put("job.records", True), "job.records", "only jobs of kind container have it"),
    (put("cluster.deletion_protection", "on off"), "cluster.deletion_protection", "true or false"),
]


@pytest.mark.parametrize(
    ("spoil", "path", "words"), _OTHER_KINDS, ids=[f"{path}-{words}" for _, path, words in _OTHER_KINDS]
)
def test_a_value_of_another_kind_is_answered_in_the_words_of_a_stack_file(
    values: Values, spoil: Spoil, path: str, words: str
) -> None:
    spoil(values)
    text = errors_of(values)[path]
    assert words in text
    assert len(text) < 300
    assert not {"tuple", "dictionary", "instance", "string", "integer"} & set(text.replace(",", " ").split()), text
