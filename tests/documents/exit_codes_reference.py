"""Generate docs/exit-codes.md: exit codes of hosts and exit statuses of commands.

The effect of a code on the job is read from the JobSet of `dev`.
"""

import re
from functools import cache
from typing import Any

import yaml

from cli.answer import INTERRUPTED, UNREAD
from tests.documents.command_line_reference import Command, commands
from tests.documents.model_fields import enum_meanings, one_line
from tests.documents.pages import MADE, ROOT
from tests.infra.job_failure import action
from workloads.spec import ExitCode

_HEAD = f"""# Exit codes

{MADE.format("tests/documents/exit_codes_reference.py")}

## Exit codes of hosts

All hosts of a job exit with the code of the host that failed first ([why a job ended](metrics.md#why-a-job-ended)).
JobSet then fails the job or restarts it on all its slices. Counted restarts use up `job.max_restarts`.

| Code | Name | Meaning | Effect on the job |
|---|---|---|---|
"""
_REST = """| any other, such as 137 | | The process was killed, or ended by a signal | restarts, counted |
| any except those that fail the job | | The pod was evicted or preempted, or its node was lost | {disrupted} |

"""
_ACTIONS = {
    "FailJobSet": "fails",
    "RestartJobSet": "restarts, counted",
    "RestartJobSetAndIgnoreMaxRestarts": "restarts, not counted",
}
_COMMANDS = f"""## Exit statuses of commands

| Status | Meaning |
|---|---|
| 0 | success |
| 1 | error; the message says what was expected, what was found, and what to do |
| 2 | a result to act on, as listed below |
| {INTERRUPTED} | Ctrl-C |
| {UNREAD} | the reader of the output, such as `head`, has closed the pipe |

`make` ends with 2 if its command fails with any status.

| Command | Status | Meaning |
|---|---|---|
"""
EVERY_COMMAND = {0: "success", 1: "error"}
"""Exit statuses of a command whose help names no others."""


def reference() -> str:
    """Return the page."""
    parts = [_HEAD, *map(_row, ExitCode)]
    parts.append(_REST.format(disrupted=_ACTIONS[action(_jobset(), 137, disrupted=True)]))
    return "".join([*parts, _COMMANDS, *map(_statuses, commands())])


@cache
def _jobset() -> Any:
    objects = list(yaml.safe_load_all((ROOT / "tests" / "golden" / "dev.yaml").read_text()))
    found = [each for each in _mappings(objects) if each.get("kind") == "JobSet" and "spec" in each]
    return found[0]


def _mappings(value: Any) -> list[Any]:
    """Return all mappings in a value, at any depth."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    below = [found for child in children for found in _mappings(child)]
    return [value, *below] if isinstance(value, dict) else below


def _row(code: ExitCode) -> str:
    # The last column has the effect, read from the JobSet.
    meaning = re.split(r": (?:restart|fail)", one_line(enum_meanings(ExitCode).get(code.name, "")))[0].removesuffix(".")
    follows = "completes when all slices have" if code == ExitCode.DONE else _ACTIONS[action(_jobset(), code)]
    return f"| {code:d} | `{code.name}` | {meaning or 'Trained to the last step'} | {follows} |\n"


def _statuses(command: Command) -> str:
    told = command.exit_statuses.items()
    return "".join(f"| `multislice {command.words}` | {number} | {meaning} |\n" for number, meaning in told)
