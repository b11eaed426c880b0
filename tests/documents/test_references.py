"""Pages that are made from the program are what it would make of them today; UPDATE_GOLDEN=1 makes them anew."""

import re
from collections.abc import Callable

import pytest

from tests.__main__ import BUILD_MINUTES, COMPLETE, QUICK
from tests.documents import (
    benchmarks_reference,
    command_line_reference,
    compiler_reference,
    exit_codes_reference,
    how_to_index,
    job_spec_reference,
    llama_stack,
    policy_reference,
    settings_reference,
    tpu_table_reference,
    trainer_metrics_reference,
    unconfirmed_reference,
)
from tests.documents.command_line_reference import Command
from tests.documents.pages import DOCS, ROOT, generated, hold, name_of
from tests.faults.page import with_catalogue

MAKERS: dict[str, Callable[[], str]] = {
    "reference/stack-file.md": settings_reference.reference,
    "reference/job-spec.md": job_spec_reference.reference,
    "reference/tpu-table.md": tpu_table_reference.reference,
    "reference/trainer-metrics.md": trainer_metrics_reference.reference,
    "reference/compiler.md": lambda: compiler_reference.with_tables((DOCS / "reference" / "compiler.md").read_text()),
    "explanation/benchmarks.md": lambda: benchmarks_reference.with_designs(
        (DOCS / "explanation" / "benchmarks.md").read_text()
    ),
    "reference/faults.md": lambda: with_catalogue((DOCS / "reference" / "faults.md").read_text()),
    "tutorials/llama-on-v6e.md": lambda: llama_stack.with_figures(llama_stack.TUTORIAL.read_text()),
    "reference/exit-codes.md": exit_codes_reference.reference,
    "reference/command-line.md": command_line_reference.reference,
    "reference/not-confirmed.md": unconfirmed_reference.reference,
    "reference/policy.md": lambda: policy_reference.with_table((DOCS / "reference" / "policy.md").read_text()),
    # The last one: it names the others.
    "how-to/index.md": how_to_index.reference,
}


@pytest.mark.parametrize("page", MAKERS)
def test_a_page_that_is_made_is_what_the_program_says_today(page: str) -> None:
    hold(DOCS / page, MAKERS[page]())


def test_the_readme_has_the_limits_of_the_tests() -> None:
    text = (ROOT / "README.md").read_text()
    for command, tier in (("make test", QUICK), ("make test-all", COMPLETE)):
        first, later = (f"limit: {minutes:g} minutes" for minutes in (tier.minutes + BUILD_MINUTES, tier.minutes))
        cells = f"`{command}` | {first} | {later}"
        text = re.sub(rf"`{command}` \|[^|]*\|[^|]*(?= \|)", cells, text)
    hold(ROOT / "README.md", text)


def test_what_says_that_it_is_made_is() -> None:
    said = {name_of(page).removeprefix("docs/") for page in DOCS.rglob("*.md") if generated(page)}
    assert said <= set(MAKERS)


def test_exit_statuses_are_read_from_what_a_command_says() -> None:
    command = Command("look", "Look at it. Exit status 1: it cannot be seen; 2: with --twice, it is gone.", ())
    assert command.exit_statuses == {1: "it cannot be seen", 2: "with --twice, it is gone"}
    assert command.sentence == "Look at it."
