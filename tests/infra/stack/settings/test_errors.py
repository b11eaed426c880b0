"""Errors of a stack file say where, what was expected and what to do."""

import pytest

from tests.infra.one_job import unnamed
from tests.infra.recording import Values
from tests.infra.spoiling import errors_of, put, remove


@pytest.mark.parametrize("name", ["Tiny", "t" * 60])
def test_a_wrong_name_of_a_job_hides_no_other_error_of_it(values: Values, name: str) -> None:
    put("job.slices.count", 3)(values)
    shown = errors_of(values).keys()
    put("job.name", name)(values)
    assert errors_of(values).keys() == {*shown, "job.name"}
    values["jobs"] = {name: unnamed(values), "tiny": "nothing"}
    assert errors_of(values).keys() >= {path.replace("job", f"jobs.{name}") for path in shown} | {f"jobs.{name}"}


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
