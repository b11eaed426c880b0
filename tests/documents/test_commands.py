"""The commands of the documents run as they stand, in a clone. Those that need a cloud are parsed."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from safetensors.numpy import load_file

from sandbox.programs import found
from tests.documents.clone import Clone, clone_in
from tests.documents.command_lines import command_lines, joined
from tests.documents.pages import PAGES, ROOT, blocks, name_of
from workloads.data.token_folder import TokenFolder

QUICK = re.compile(
    r"\. \.venv/bin/activate|mkdir |echo |cp |\.venv/bin/python -m workloads\.data |multislice init .* --|"
    r"multislice review -s (?!STACK)"
)
"""Lines that run in any clone, without a cloud, in seconds."""
SLOW = re.compile(
    r"make train\b|make preview|multislice preview -s \w+$|\.venv/bin/python -m workloads\.(training|weights)|"
    r"python -m multislice_run check"
)
"""Lines that run in any clone and train, or start the engine."""
IN_SANDBOXES = re.compile(
    r"(make (up|down)|kill|(multislice \w+|.venv/bin/python -m examples \w+) .*(local|\.sandbox))\b"
)
"""Lines of tests/sandboxes/test_documented_commands.py."""
ELSEWHERE = re.compile(
    r"(KUBERNETES_PLUGIN=published )?make (environment|test|test-all|faults|bench|lint|format|fuzz|docs|pictures|audit"
    r"|lock|programs|help)\b|\.venv/bin/python -m (benchmarks|tests)\."
)
"""Lines that themselves run tests or benchmarks, or install packages."""
CLOUD = re.compile(
    r"multislice |gcloud |pulumi |kubectl |docker |pip |xprof |git clone |curl |python -m workloads\.data .*gs://"
    r"|python3 -m venv |gh |cd |[A-Z_]+=\S+( |$)|for |while |done$"
)
"""Lines for which a reader needs an account, a cluster or packages of others, and scripts of them."""
EXIT_STATUSES = {"multislice review -s dev": 2, "multislice preview -s dev": 0}
"""Pages say that the example is refused."""
PROGRAMS = ["pulumi", "kubectl"]
REPOSITORY = {path.name for path in ROOT.iterdir() if path.is_dir()}
HELPED = [
    line
    for line in command_lines()
    if re.match(r"(pulumi|kubectl|(\.venv/bin/)?python -m) ", line)
    and not any(kind.match(line) for kind in (QUICK, SLOW, IN_SANDBOXES))
]


def lines_of(page: Path) -> list[str]:
    """Return the lines of the blocks of a page, with those that continue them."""
    return [line for block in blocks(page.read_text(), "sh", "console") for line in joined(block)]


def chosen(page: Path, *kinds: re.Pattern[str]) -> list[str]:
    return [line for line in lines_of(page) if any(kind.match(line) for kind in kinds)]


def pages(kind: re.Pattern[str], *more: re.Pattern[str]) -> list[ParameterSet]:
    """Return the pages with lines of a kind other than the activation of the environment."""
    found = [page for page in PAGES if any("activate" not in line for line in chosen(page, kind))]
    return [pytest.param(name_of(page), chosen(page, kind, *more), id=name_of(page)) for page in found]


def check_chat(folder: Path, _: str) -> None:
    row = TokenFolder.open(str(folder / "chat")).rows(128)[[0]][0]
    assert bytes(int(number) >> 1 for number in row).startswith(b"<user>1 + 1?</user><assistant>2</assistant>\n\0")
    assert bytes(int(number) >> 1 for number in row if number & 1 == 0) == b"2</assistant>\n"


def check_weights(folder: Path, output: str) -> None:
    (file,) = (folder / "hugging-face").glob("model-*.safetensors")
    assert "model.layers.1.mlp.down_proj.weight" in load_file(file)
    # The command of the section on meshes has trained the run that the second one finds complete.
    assert output.count("step 20/20 loss") == 2
    ledgers = [path.read_text() for path in (folder / "train").rglob("*.jsonl")]
    assert any("initial_weights" in text and str(folder / "weights") in text for text in ledgers)


def check_tokens(_: Path, output: str) -> None:
    assert "step 20/20 loss" in output


CHECKS: Mapping[str, Callable[[Path, str], None]] = {
    "docs/how-to/fine-tuning.md": check_chat,
    "docs/how-to/models.md": check_weights,
    "docs/how-to/data.md": check_tokens,
}
"""What the commands of a page write to `.sandbox`, or print."""


@pytest.mark.costs(cpu_seconds=12)
@pytest.mark.parametrize(("page", "lines"), pages(QUICK))
def test_commands_of_a_page_run(clone: Clone, page: str, lines: Sequence[str]) -> None:
    output = clone.run([". .venv/bin/activate", *lines], EXIT_STATUSES)
    if not chosen(ROOT / page, SLOW):
        CHECKS.get(page, lambda *_: None)(clone.root / ".sandbox", output)


@pytest.mark.complete
@pytest.mark.parametrize(("page", "lines"), pages(SLOW, QUICK))
def test_commands_of_a_page_that_train_or_plan_run(tmp_path: Path, page: str, lines: Sequence[str]) -> None:
    output = clone_in(tmp_path).run([". .venv/bin/activate", *lines], EXIT_STATUSES)
    CHECKS.get(page, lambda *_: None)(tmp_path / ".sandbox", output)


@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page)) for page in PAGES])
def test_every_line_of_a_page_runs_or_needs_a_cloud(page: Path) -> None:
    kinds = (QUICK, SLOW, IN_SANDBOXES, ELSEWHERE, CLOUD)
    assert [line for line in lines_of(page) if not any(kind.match(line) for kind in kinds)] == []


@pytest.mark.complete
@pytest.mark.parametrize("line", HELPED)
def test_a_program_has_the_options_and_files_of_a_command_line(line: str) -> None:
    words = shlex.split(re.split(r" (?:&&|>|\|) | -- ", line)[0])
    if words[0] in PROGRAMS:
        words[0] = str(found(PROGRAMS).path(words[0]))
    else:
        words[0] = sys.executable
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    names = list(takewhile(lambda word: word == "-m" or not word.startswith("-"), words))
    # Without the variable, Pulumi does not list its experimental options.
    environment = {**os.environ, "PULUMI_EXPERIMENTAL": "true"}
    asked = subprocess.run([*names, "--help"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    helped = asked.stdout
    assert [option for option in options if option not in helped] == []
    files = [word for word in words if word.split("/")[0] in REPOSITORY and not word.startswith(".")]
    assert [file for file in files if not (ROOT / file).exists()] == []
