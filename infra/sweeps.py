"""Sweeps: a job that is written once and run with several values of its settings.

Owns which runs there are and their names. Each run is a job like any other from there on: a JobSet, a folder and a
price of its own. Pure.

A run is named by the places of its values in their lists, so that a value added at the end of any list leaves all
names as they are. A number counted over all runs would rename most of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import cast

from infra.faults import Fault

type Written = Mapping[str, object]

KEY = "sweep"
MOST_RUNS = 64
"""Of one sweep. Every preview checks, prices and rehearses each run, some tenths of a second for each, and every `up`
looks at its JobSet: with more, both would be waited for."""

_FIXED = ("name", "kind", "team", KEY)
"""What is the same of all runs: they are one team's, and jobs of one kind."""


def runs(name: str, written: Written) -> Iterator[tuple[str, Written]]:
    """The name of each run of a sweep that has no `faults`, and its section of the stack file."""
    axes = sorted(cast(Mapping[str, Sequence[object]], written[KEY]).items())
    for chosen in product(*(list(enumerate(values)) for _, values in axes)):
        section = written
        for (path, _), (_, value) in zip(axes, chosen, strict=True):
            section = _with(section, path.split("."), value)
        yield "-".join([name, *(str(place) for place, _ in chosen)]), section


def faults(path: str, written: Written) -> Iterator[Fault]:
    """What is wrong with the section `sweep` of the job at `path`."""
    place, sweep = f"{path}.{KEY}", written[KEY]
    if not isinstance(sweep, Mapping) or not sweep:
        yield Fault(place, "lists of values by setting, such as training.seed: [0, 1]", repr(sweep), "write one")
        return
    sizes: list[int] = []
    for setting, values in cast(Mapping[str, object], sweep).items():
        if setting.partition(".")[0] in _FIXED:
            fixed = ", ".join(_FIXED)
            yield Fault(f"{place}.{setting}", f"a setting of the job but {fixed}", repr(setting), "remove it")
        elif not isinstance(values, list) or not values:
            yield Fault(f"{place}.{setting}", "a list of values", repr(values), "write one, or remove the setting")
        elif repeated := _repeated(cast(list[object], values)):
            yield Fault(f"{place}.{setting}", "each value once", f"{repeated[0]!r} again", "remove it there")
        else:
            sizes.append(len(cast(list[object], values)))
    if prod(sizes) > MOST_RUNS:
        told = " x ".join(map(str, sizes))
        yield Fault(place, f"at most {MOST_RUNS} runs", f"{prod(sizes)} ({told})", "write fewer values, or two sweeps")


def sweep_of(name: str, sweep: Mapping[str, object]) -> str | None:
    """The sweep that the run of this name is of; None: the job is no run of one."""
    return name.rsplit("-", len(sweep))[0] if sweep else None


def _repeated(values: list[object]) -> list[object]:
    return [value for place, value in enumerate(values) if value in values[:place]]


def _with(section: Written, path: Sequence[str], value: object) -> Written:
    """The section with that value in it."""
    first, *rest = path
    if not rest:
        return {**section, first: value}
    inner = section.get(first)
    return {**section, first: _with(cast(Written, inner) if isinstance(inner, Mapping) else {}, rest, value)}
