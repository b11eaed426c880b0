"""Profiles of a range of steps.

Owns the capture and its way into the run's folder; reading it is up to XProf or Perfetto.
"""

import tempfile
from pathlib import Path

import jax
from etils import epath


class StepProfiler:
    """Captures the steps `first` to `last` on this host, if any were asked for."""

    def __init__(self, steps: tuple[int, int] | None, folder: epath.Path):
        self._steps = steps
        self._folder = folder
        # JAX writes to a local folder; the run's may be in a bucket.
        self._local: tempfile.TemporaryDirectory[str] | None = None

    def before(self, step: int) -> None:
        """Call before `step`, counted from 1, begins."""
        if self._steps and step == self._steps[0]:
            self._local = tempfile.TemporaryDirectory(prefix="profile-")
            jax.profiler.start_trace(self._local.name)

    def after(self, step: int) -> None:
        """Call when `step` is done."""
        if self._steps and self._local and step == self._steps[1]:
            jax.profiler.stop_trace()
            _copy(Path(self._local.name), self._folder)
            self._local.cleanup()
            self._local = None


def _copy(source: Path, target: epath.Path) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            copied = target / path.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(path.read_bytes())
