"""A person's yes before something is stopped."""

import sys

from cli.halt import Halt


def agree(question: str, *, yes: bool) -> None:
    """Ask on stderr, unless the command line said yes.

    Raises:
        Halt: the answer is not yes, or nobody can be asked.
    """
    if yes:
        return
    if not (sys.stdin and sys.stdin.isatty()):
        raise Halt(f"{question}\nexpected somebody to agree, got no terminal to ask; agree with --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Halt("nothing was changed")
