"""Sweeps: one section, several jobs."""

from copy import deepcopy
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from infra.review.answers import tables
from infra.review.review import review
from infra.stack.cost import SweepBill, bill
from infra.stack.settings import jobs
from infra.stack.settings.jobs import ContainerJob
from infra.stack.settings.read import parse
from tests.infra.one_job import unnamed
from tests.infra.recording import Values
from tests.infra.review.known import NOTHING
from tests.infra.spoiling import errors_of
from tests.infra.stack.settings.test_jobs import CONTAINER

ONE_SLICE = {"group": "trillium", "count": 1}
SEEDS_AND_BATCHES = {"training.seed": [0, 1, 2], "training.global_batch": [64, 128]}


def swept(values: Values, **changes: object) -> Values:
    """The training job of the stack as the sweep `study`."""
    made = deepcopy(values)
    made["jobs"] = {"study": unnamed(made) | {"slices": ONE_SLICE, "sweep": SEEDS_AND_BATCHES} | changes}
    return made


def test_each_combination_is_a_job_named_by_the_places_of_its_values(values: Values) -> None:
    jobs = parse(swept(values)).training_jobs
    chosen = {name: (job.training["global_batch"], job.training["seed"]) for name, job in jobs.items()}
    assert chosen == {
        "study-0-0": (64, 0),
        "study-0-1": (64, 1),
        "study-0-2": (64, 2),
        "study-1-0": (128, 0),
        "study-1-1": (128, 1),
        "study-1-2": (128, 2),
    }
    assert {job.sweep_name for job in jobs.values()} == {"study"}


AXES = st.dictionaries(
    st.from_regex(r"[a-z]{1,4}", fullmatch=True).filter(lambda name: name not in ("name", "kind", "team")),
    st.lists(st.integers(), min_size=1, max_size=4, unique=True),
    min_size=1,
    max_size=3,
)


@given(AXES, st.data())
def test_a_value_that_is_added_at_the_end_changes_no_other_run(axes: dict[str, list[int]], data: st.DataObject) -> None:
    before = dict(jobs.sweep_runs("study", {"sweep": axes}))
    axis = data.draw(st.sampled_from(sorted(axes)))
    new = max(axes[axis]) + 1
    after = dict(jobs.sweep_runs("study", {"sweep": axes | {axis: [*axes[axis], new]}}))
    assert len(before) == prod(map(len, axes.values()))
    assert {name: after[name][key] for name in before for key in axes} == {
        name: before[name][key] for name in before for key in axes
    }
    assert all(after[name][axis] == new for name in after.keys() - before.keys())
    assert all(jobs.sweep_of(name, axes) == "study" for name in after)


def test_a_program_of_ones_own_is_swept_by_its_words_and_variables(values: Values) -> None:
    sweep = {"args": [["--lr", "1e-3"], ["--lr", "3e-4"]], "env.SEED": ["0", "1"]}
    values["jobs"] = {"study": CONTAINER | {"team": "research", "slices": ONE_SLICE, "sweep": sweep}}
    del values["job"], values["image"]
    jobs = [job for job in parse(values).jobs.values() if isinstance(job, ContainerJob)]
    assert [(job.args[1], job.env["SEED"], job.env["LEVEL"]) for job in jobs] == [
        ("1e-3", "0", "info"),
        ("1e-3", "1", "info"),
        ("3e-4", "0", "info"),
        ("3e-4", "1", "info"),
    ]


def test_each_run_is_priced_and_all_of_them_together(values: Values) -> None:
    values["prices"] = {"usd_per_chip_hour": {"trillium": 0.5}}
    made = bill(parse(swept(values, max_hours=2)), {}, None)
    # A slice of 8 chips costs 4 dollars an hour, so each of the 6 runs costs at most 8.
    assert [job.groups[0].usd_at_most for job in made.jobs] == [8.0] * 6
    assert made.sweeps == (
        SweepBill(name="study", team="research", runs=6, usd_per_hour=24.0, usd=None, usd_at_most=48.0),
    )


def test_a_review_says_that_the_runs_are_behind_each_other_and_what_all_cost(values: Values) -> None:
    made = tables(review("test", parse(swept(values, max_hours=2)), NOTHING))
    (notes,) = [table.notes for table in made if table.title == "Price"]
    (said,) = [note for note in notes if note.startswith("study: ")]
    assert "6 runs, queued one after another for team research; together at most $" in said


def test_a_budget_holds_for_all_runs_and_says_how_long_each_may_be(values: Values) -> None:
    values["budget"] = {"usd_total": 600}
    (said,) = errors_of(swept(values)).values()
    hours = float(said.rpartition("max_hours: ")[2].partition(",")[0])
    assert parse(swept(values, max_hours=hours))
    assert errors_of(swept(values, max_hours=hours + 0.1)).keys() == {"budget.usd_total"}


def test_the_most_runs_are_as_many_as_it_says(values: Values) -> None:
    runs = parse(swept(values, sweep={"training.seed": list(range(jobs.MAX_SWEEP_RUNS))})).jobs
    assert len(runs) == jobs.MAX_SWEEP_RUNS


def test_a_name_that_is_too_long_with_the_places_is_to_be_shortened(values: Values) -> None:
    made = swept(values)
    made["jobs"] = {"a" * 24: made["jobs"]["study"]}
    assert errors_of(made).keys() == {"jobs." + "a" * 24}


def test_no_run_takes_the_name_of_another_job(values: Values) -> None:
    made = swept(values, sweep={"training.seed": [0, 1]})
    made["jobs"]["study-1"] = {key: item for key, item in made["jobs"]["study"].items() if key != "sweep"}
    assert errors_of(made).keys() == {"jobs.study-1"}
