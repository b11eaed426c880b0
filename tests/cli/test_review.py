import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from cli.answer import Form, Halt
from cli.review import review
from infra.review.review import Review
from infra.stack.cost import bill
from infra.stack.settings.read import parse
from tests.cli.shown import read_output
from tests.infra.review.known import own, running


@pytest.fixture(autouse=True)
def no_preflight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def prod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stack prod with values of its own in place of the example's."""
    config = {f"tpu-multislice:{section}": value for section, value in own("prod").items()}
    path = tmp_path / "Pulumi.prod.yaml"
    path.write_text(json.dumps({"config": config}))
    monkeypatch.setattr("cli.stack_file.stacks_folder", lambda: tmp_path)
    return path


def shown(form: Form, outputs: Path | None = None, workloads: Path | None = None) -> str:
    console = Console(file=io.StringIO(), highlight=False)
    assert review("prod", outputs, workloads, form, console) == 0
    return read_output(console)


@pytest.mark.usefixtures("prod")
def test_text_markdown_and_object_tell_the_same_price() -> None:
    assert "$752.64 an hour" in shown(Form.TEXT)
    folded = "<details><summary><b>Price</b>: $752.64 an hour ($18,063.36 a day) while deployed</summary>"
    first, second, *rest = shown(Form.MARKDOWN).split("\n\n")
    assert first.startswith("- **Price:** $752.64 an hour ($18,063.36 a day) while deployed\n- **Fits:** ")
    assert (second, len(rest) > 1) == (folded, True)
    assert Review.model_validate_json(shown(Form.JSON)).bill.at_once.usd_per_hour == 752.64


@pytest.mark.usefixtures("prod")
def test_what_pulumi_and_kubectl_print_is_compared_with(tmp_path: Path) -> None:
    outputs, workloads = tmp_path / "outputs.json", tmp_path / "workloads.json"
    values = own("prod")
    values["slices"]["cubes"]["count"] = 5
    exported = bill(parse(values), {}, None).model_dump(mode="json", exclude_none=True)
    outputs.write_text(json.dumps({"bill": exported, "cluster": "multislice-prod"}))
    items = [running("pretraining", "pretraining", "v5p-4x4x4-reservation-cubes", 192)]
    workloads.write_text(json.dumps({"kind": "List", "items": items}))

    text = shown(Form.TEXT, outputs, workloads)

    assert "-$188.16 an hour (-$4,515.84 a day) compared with what is deployed" in " ".join(text.split())
    assert "preempts pretraining/other" in text


def test_a_stack_with_example_values_is_refused_by_name() -> None:
    console = Console(file=io.StringIO(), highlight=False)
    assert review("dev", None, None, Form.TEXT, console) == 2
    words = read_output(console)
    assert "Verdict  NO: `up` refuses this stack: correct cloud.project" in words


@pytest.mark.usefixtures("prod")
def test_the_tables_are_shown_on_request() -> None:
    console = Console(file=io.StringIO(), highlight=False)
    assert review("prod", None, None, Form.TEXT, console, verbose=True) == 0
    words = read_output(console)
    assert words.startswith(shown(Form.TEXT))
    assert "$/chip h" in words
    assert "$/chip h" not in shown(Form.TEXT)


def test_a_budget_whose_last_day_is_over_is_refused_by_name(prod: Path) -> None:
    content = json.loads(prod.read_text())
    content["config"]["tpu-multislice:budget"] = {"expires_on": "2020-01-01"}
    prod.write_text(json.dumps(content))
    console = Console(file=io.StringIO(), highlight=False)
    assert review("prod", None, None, Form.TEXT, console) == 2
    assert "budget.expires_on" in read_output(console)


@pytest.mark.parametrize("content", ["{", "[]", '{"cluster": "x"}'])
def test_a_file_of_something_else_is_named_with_the_command_that_makes_it(content: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(content)
    with pytest.raises(Halt, match=r"file\.json must .*, got") as caught:
        review("prod", path, None, Form.TEXT, Console())
    assert f"> {path}" not in str(caught.value), "who follows it would overwrite what was given"
    with pytest.raises(Halt, match=r"file\.json must .*kubectl get workloads") as caught:
        review("prod", None, path, Form.TEXT, Console())
    assert f"> {path}" not in str(caught.value)
    with pytest.raises(Halt, match=r"nowhere must be JSON, got"):
        review("prod", tmp_path / "nowhere", None, Form.TEXT, Console())


@pytest.mark.parametrize("item", [1, {}, {"kind": "Pod", "metadata": {"name": "x"}, "spec": {}}])
def test_a_list_of_something_else_is_no_list_of_workloads(item: object, tmp_path: Path) -> None:
    path = tmp_path / "workloads.json"
    path.write_text(json.dumps({"items": [running("pretraining", "pretraining", "flavor", 4), item]}))
    with pytest.raises(Halt, match=r"must be a list of only Workloads.*kubectl get workloads"):
        review("prod", None, path, Form.TEXT, Console())


@pytest.mark.parametrize(
    ("lost", "named"), [("metadata", "items.1.metadata"), ("spec", "items.1.spec"), ("podSets", "items.1.spec.podSets")]
)
def test_a_workload_that_is_not_whole_is_named(lost: str, named: str, tmp_path: Path) -> None:
    item = running("finetuning", "finetuning", "flavor", 4)
    (item["spec"] if lost == "podSets" else item).pop(lost)
    path = tmp_path / "workloads.json"
    path.write_text(json.dumps({"items": [running("pretraining", "pretraining", "flavor", 4), item]}))
    with pytest.raises(Halt, match=rf"{named} is missing"):
        review("prod", None, path, Form.TEXT, Console())


def test_a_bill_of_another_version_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "outputs.json"
    path.write_text('{"bill": {"groups": []}}')
    with pytest.raises(Halt, match="got another format"):
        review("prod", path, None, Form.TEXT, Console())
