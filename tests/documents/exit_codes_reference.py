"""Renders the exit codes of hosts, with the reaction of the JobSet that `dev` renders, and those of commands."""

from functools import cache
from typing import Any

import yaml

from cli.answer import INTERRUPTED, UNREAD
from multislice_run.exit_codes import OTHER, ExitCode, Meaning, Reaction
from tests.documents.command_line_reference import Command, commands
from tests.documents.pages import MADE, ROOT
from tests.infra.job_failure import action

_HEAD = f"""# Exit codes

{MADE.format("tests/documents/exit_codes_reference.py")}

## Hosts of a job

All trainers exit with the code of the one that failed first. Their supervisors start them again in the same pods, or
end the pods. A restart that counts uses up one of `job.max_restarts`. JobSet's reaction is to pods of trainers, if the
stack installs JobSet. [What to do](../explanation/reliability.md#when-a-job-stops).

| Code | Name | Meaning | The supervisor's reaction | JobSet's reaction if a pod ends with it |
|---|---|---|---|---|
"""
_REST = """| any other, such as 137 | | killed, or ended by a signal | {again} | {other} |
| any, if the pod was evicted or preempted, or its node lost | | unless the code fails the job at once | | {disrupted} |
| none | | the program never ran, for example because the pod's node refused it | | {refused} |

"""
_ACTIONS = {
    "FailJobSet": f"{Reaction.FAIL}",
    "RestartJobSet": f"{Reaction.RESTART_JOB}; counts",
    "RestartJobSetAndIgnoreMaxRestarts": f"{Reaction.RESTART_JOB}; does not count",
    "RestartJob": f"{Reaction.RESTART_SLICE}; counts",
    "RestartJobAndIgnoreMaxRestarts": f"{Reaction.RESTART_SLICE}; does not count",
}
_COMMANDS = f"""## Commands

| Status | Meaning |
|---|---|
| 0 | success |
| 1 | error or wrong command line: the message says what was expected, what was found, and what to do next |
| 2 | a result to act on, as listed below |
| {INTERRUPTED} | Ctrl-C |
| {UNREAD} | the reader of the output, such as `head`, has closed the pipe |

`make` exits with 2 whenever its command does not exit with 0.

| Command | Status | Meaning |
|---|---|---|
"""


def reference() -> str:
    """Return the page."""
    parts = [_HEAD, *map(_row, ExitCode)]
    disrupted, refused = action(_jobset(), 137, disrupted=True), action(_jobset(), None)
    other = _ACTIONS[action(_jobset(), 137)]
    again = _supervised(OTHER)
    parts.append(_REST.format(again=again, other=other, disrupted=_ACTIONS[disrupted], refused=_ACTIONS[refused]))
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
    what = code.meaning.what
    follows = (
        f"{Reaction.COMPLETE}; the job is done when all slices are"
        if code == ExitCode.DONE
        else _ACTIONS[action(_jobset(), code)]
    )
    return f"| {code:d} | `{code.name}` | {what[0].upper()}{what[1:]} | {_supervised(code.meaning)} | {follows} |\n"


def _supervised(meaning: Meaning) -> str:
    if not meaning.stays:
        return "ends the pod"
    return "starts the trainer again; " + ("counts" if meaning.counts else "does not count")


def _statuses(command: Command) -> str:
    statuses = command.exit_statuses.items()
    return "".join(f"| `multislice {command.words}` | {number} | {meaning} |\n" for number, meaning in statuses)
