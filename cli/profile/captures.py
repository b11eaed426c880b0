"""The profiles in the storage of a run, as `workloads.training.profile` leaves them there."""

import re
from dataclasses import dataclass

from etils import epath

_BELOW = ("profiles", "plugins", "profile")
_NAME = re.compile(r"\d+-\d+-\d+")
"""Of a capture; other tools name theirs otherwise."""
_TRACE = ".xplane.pb"
"""Of each host, the file that XProf reads."""


@dataclass(frozen=True)
class Capture:
    """One of them: the same steps on all hosts."""

    name: str
    """`<start>-<first step>-<last step>`."""
    sizes: dict[str, int]
    """Bytes of each file, by its name."""

    @property
    def hosts(self) -> int:
        """Of which there is a trace."""
        return sum(name.endswith(_TRACE) for name in self.sizes)

    @property
    def steps(self) -> tuple[int, int]:
        """First and last one."""
        _, first, last = map(int, self.name.split("-"))
        return first, last


def captures(run: epath.Path) -> dict[str, Capture]:
    """Those that a run has, by name."""
    folder = run.joinpath(*_BELOW)
    if not folder.exists():
        return {}
    return {each.name: Capture(each.name, _sizes(each)) for each in folder.iterdir() if _NAME.fullmatch(each.name)}


def download(run: epath.Path, capture: Capture, target: epath.Path) -> epath.Path:
    """Copy a capture to where XProf finds it below `target`; its folder there."""
    source = run.joinpath(*_BELOW, capture.name)
    copy = target.joinpath(*_BELOW[1:], capture.name)
    copy.mkdir(parents=True, exist_ok=True)
    for name in capture.sizes:
        (copy / name).write_bytes((source / name).read_bytes())
    return copy


def _sizes(folder: epath.Path) -> dict[str, int]:
    return {path.name: path.stat().length for path in folder.iterdir()}
