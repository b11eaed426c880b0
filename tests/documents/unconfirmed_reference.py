"""Renders what a run on Google Cloud has to confirm, and what the files in `confirmed` say about it."""

from collections.abc import Iterator

from cli.confirm.items import ITEMS, STAGES, Item
from cli.confirm.record import Confirmation, confirmations
from tests.documents.pages import MADE, ROOT

_HEAD = f"""# Confirmations

{MADE.format("tests/documents/confirmed_reference.py")}

```sh
multislice confirm -s STACK
```

The command asks a deployed stack what only a run on Google Cloud can confirm, and writes `confirmation.json`. It
changes nothing in the stack. The file has numbers, results and the shapes of slices, but no names of projects, stacks,
jobs or people. To share it, give it another name, put it into `confirmed/` and open a pull request. In a sandbox the
command answers what needs neither chips nor Google Cloud; such a file confirms nothing.

Check the stages in order: each costs more than the one before. The command answers the items that are marked as asked,
once what is named there has run. A person has to look at the others.

"""
_COLUMNS = "| Item | Assumption | Asked | How to check | Confirmed |\n|---|---|---|---|---|\n"


def reference() -> str:
    """Return the page."""
    files = confirmations(ROOT / "confirmed")
    stages = "\n".join(_stage(index, title, files) for index, title in enumerate(STAGES))
    return f"{_HEAD}{stages}\n## Files\n\n{''.join(_files(files)) or 'No one has sent a file yet.'}\n"


def _stage(index: int, title: str, files: list[tuple[str, Confirmation]]) -> str:
    rows = "".join(_row(item, files) for item in ITEMS if item.stage == index)
    return f"## {index + 1}. {title}\n\n{_COLUMNS}{rows}"


def _row(item: Item, files: list[tuple[str, Confirmation]]) -> str:
    asked = "yes" if item.question else "no"
    return f"| {item.title} | {item.assumption} | {asked} | {item.how} | {_results(item, files)} |\n"


def _results(item: Item, files: list[tuple[str, Confirmation]]) -> str:
    results = [answer.result for _, found in files for answer in found.answers if answer.item == item.name]
    counts = {result: results.count(result) for result in ("confirmed", "differs")}
    return ", ".join(f"{count} {result}" for result, count in counts.items() if count) or "not yet"


def _files(files: list[tuple[str, Confirmation]]) -> Iterator[str]:
    for name, found in files:
        slices = ", ".join(f"{each.count} x {each.generation} {each.topology} {each.capacity}" for each in found.slices)
        yield f"- `confirmed/{name}`: {found.date}, version {found.version}, {slices}\n"
        for answer in found.answers:
            if answer.result != "not asked":
                values = ", ".join(f"{key} {value}" for key, value in answer.found.items())
                yield f"    - {answer.item}: {answer.result}{f', {values}' if values else ''}\n"
