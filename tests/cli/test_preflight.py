import io
from pathlib import Path

import pytest
from rich.console import Console

from cli import preflight as command
from cli import stack_file
from cli.answer import Form, Halt
from cli.preflight import run
from infra.review.review import Review
from tests.cli.shown import read_output
from tests.infra.one_job import only_spec
from tests.workloads.preflight.jobs import v6e_job
from tests.workloads.test_preflight_result import result
from workloads.preflight_result import cache_folder, keep, preflight_key
from workloads.spec import MeshSpec


def quiet() -> Console:
    return Console(file=io.StringIO(), highlight=False)


def test_a_known_result_is_not_compiled_again(tmp_path: Path) -> None:
    spec, console = v6e_job(), quiet()
    keep(result(spec), tmp_path)

    assert run(spec, tmp_path, None, console) == result(spec)
    assert read_output(console) == ""


def test_a_reason_for_no_answer_is_looked_at_again_by_a_process_that_is_followed(tmp_path: Path) -> None:
    plain, console = v6e_job(), quiet()
    spec = plain.model_copy(update={"slices": plain.slices.model_copy(update={"generation": "cpu"})})
    keep(result(spec).model_copy(update={"unsupported": "was out of memory"}), tmp_path)
    found = run(spec, tmp_path, None, console)
    assert "choose one of v4" in (found.unsupported or "")
    assert "compiling: the job as it is" in read_output(console)
    assert found.key == preflight_key(spec)


def test_a_process_that_failed_is_reported_with_its_last_words_though_an_older_result_is_there(tmp_path: Path) -> None:
    spec = v6e_job().model_copy(update={"mesh": MeshSpec(replica=1, fsdp=1)})
    keep(result(spec), tmp_path)
    with pytest.raises(Halt, match=r"exit status 1(.*\n)*.*mesh replica 1 x fsdp 1 must have"):
        run(spec, tmp_path, str(tmp_path / "programs"), quiet())


@pytest.mark.parametrize(("update", "status"), [({}, 0), ({"fits": False, "steps": ()}, 2)])
def test_the_exit_status_says_whether_the_stack_s_job_fits(
    update: dict[str, object], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    spec, console = only_spec(stack_file.read(stack_file.find("local"))), quiet()
    keep(result(spec).model_copy(update=update), cache_folder({"XDG_CACHE_HOME": str(tmp_path)}))

    assert command.preflight("local", Form.JSON, None, console) == status
    assert Review.model_validate_json(read_output(console)).jobs[0].preflight == result(spec).model_copy(update=update)
