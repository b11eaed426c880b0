"""What a shell offers for a word of a command line: names of stacks and of their jobs.

Owns where these are looked up: the stack files of this checkout, for whoever presses Tab does not wait for a cluster.
A file that cannot be read offers nothing.
"""

from collections.abc import Iterable, Mapping

from typer import Context

from cli import stack_file
from cli.halt import Halt


def stacks(incomplete: str) -> list[str]:
    """Stacks that have a file, and whose names begin so."""
    return _beginning(incomplete, stack_file.names())


def jobs(context: Context, incomplete: str) -> list[str]:
    """Jobs of the stack that the command line names before, or else of any, whose names begin so."""
    return _beginning(incomplete, names_of_jobs(context.params.get("stack")))


def names_of_jobs(stack: str | None) -> list[str]:
    """Those in the file of a stack; None: in the files of all."""
    return sorted({name for each in ([stack] if stack else stack_file.names()) for name in _jobs_of(each)})


def _jobs_of(stack: str) -> list[str]:
    try:
        sections = stack_file.sections(stack_file.content(stack_file.find(stack))["config"])
    except Halt:
        return []
    several, only = sections.get("jobs"), sections.get("job")
    named = only.get("name") if isinstance(only, Mapping) else None
    return [str(name) for name in (*(several if isinstance(several, Mapping) else ()), named) if name]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})
