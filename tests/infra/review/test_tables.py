"""Reviews as tables."""

from dataclasses import replace

from infra.review.review import Known, review
from infra.review.table import as_text
from infra.review.tables import tables
from infra.stack.cost import bill
from infra.stack.settings.read import parse
from tests.infra.one_job import unnamed
from tests.infra.recording import Values, stack_values
from tests.infra.review.known import NOTHING, own


def show(values: Values, known: Known) -> str:
    return as_text(tables(review("test", parse(values), known)))


def test_each_group_is_listed_with_its_price_per_hour_day_and_month() -> None:
    text = show(own("dev"), NOTHING)
    assert text.startswith("Price  $19.44 an hour ($466.56 a day) while deployed\n")
    assert "trillium        2   v6e 2x4      16   spot         1.2150   19.44     467    14,191" in text
    assert "us-east5, 2026-08" in text


def test_an_unknown_price_is_never_shown_as_zero() -> None:
    values = own("staging")
    text = show(values, NOTHING)
    assert "Price  $0.00 an hour ($0.00 a day) while deployed, at most an unknown price for trillium\n" in text
    values["slices"]["spare"] = values["slices"]["trillium"] | {"capacity": "spot", "count": 1}
    mixed = show(values, NOTHING)
    most = "at most $19.44 an hour ($466.56 a day) and an unknown price for trillium"
    assert most in " ".join(mixed.splitlines())
    assert "19.44 + ?" in mixed
    assert [row.split()[:2] for row in mixed.splitlines() if row.startswith("all ")] == [
        ["all", "flex-start"],
        ["all", "spot"],
    ]


def test_an_unknown_difference_is_never_shown_as_none() -> None:
    values = own("staging")
    before = bill(parse(values), {}, None)
    values["slices"]["trillium"]["count"] = 3
    text = " ".join(show(values, replace(NOTHING, deployed=before)).split("\n"))
    assert "+$0.00 an hour (+$0.00 a day) at once, unknown at most; trillium 32 to 48 chips, unknown" in text
    values["slices"]["trillium"] |= {"count": 2, "capacity": {"kind": "reservation", "name": "chips"}}
    text = " ".join(show(values, replace(NOTHING, deployed=before)).split("\n"))
    assert "trillium 32 to 32 chips, unknown" in text


def test_tables_about_one_of_several_jobs_have_its_name_and_what_holds_for_all_is_said_once() -> None:
    values = own("dev")
    job = unnamed(values)
    container = {key: job[key] for key in ("team", "priority", "max_restarts")}
    container |= {"kind": "container", "image": f"program@sha256:{'0' * 64}"}
    one_slice = {"slices": {"group": "trillium", "count": 1}}
    values["jobs"] = {"one": job | one_slice, "other": job | one_slice, "program": container | one_slice}
    values["scheduling"] = {"placement": "topology-aware"}
    text = show(values, NOTHING)
    for title in ("Fits of one", "Fits of other"):
        assert f"{title}  " in text
    assert "Fits of program" not in text
    for name in ("one", "other", "program"):
        assert text.count(f"\nresearch/{name} (8 chips") == 1
    assert text.count("simulated for an empty cluster") == text.count("also counts free hosts") == 1


def test_what_up_refuses_and_what_is_doubtful_come_first() -> None:
    values = own("dev")
    values["job"]["initial_weights"] = "gs://elsewhere/weights"
    (first, second, *_) = tables(review("dev", parse(values), NOTHING))
    assert (first.title, first.state, second.title) == ("Ready", "notable", "Price")
    assert "elsewhere" in as_text([first])
    (first, *_) = tables(review("dev", parse(stack_values("dev")), NOTHING))
    assert (first.title, first.state) == ("Ready", "bad")
    assert "my-project" in as_text([first])
    (first, *_) = tables(review("dev", parse(own("dev")), NOTHING))
    assert first.title == "Price"
