"""Words that `make lint` refuses in comments and strings of the sources; see docs/how-to/style.md."""

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

REFUSED = re.compile(
    r"\b(anew|nobody|whom|for ever|is told|are told|tells of|who is asked|what there is|stands beside|lies beside)\b",
    re.I,
)
_PROSE = (tokenize.COMMENT, tokenize.STRING, tokenize.FSTRING_MIDDLE)
_EXEMPT = re.compile(r'"anew"')
"""The former value of `existing_run`, which is still accepted."""


def refused(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the word of every refused word in comments and strings of a source."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _PROSE and not _EXEMPT.search(token.string):
            for number, line in enumerate(token.string.splitlines(), token.start[0]):
                yield from ((number, found[0]) for found in REFUSED.finditer(line))


def main() -> int:
    """Print every refused word of the tracked sources, tests apart; return 1 if there is one."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [path for path in listed.stdout.split() if not path.startswith("tests/") and (ROOT / path).exists()]
    found = [(path, *each) for path in paths for each in refused((ROOT / path).read_text())]
    for path, number, word in found:
        print(f"{path}:{number}: {word!r} is not plain English; docs/how-to/style.md says what to write")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
