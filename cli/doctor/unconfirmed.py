"""Everything that only a run on Google Cloud can confirm: the assumptions of `unconfirmed.yaml`.

`multislice doctor` lists what concerns a stack. `docs/reference/not-confirmed.md` lists all of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

from infra.review.table import Table
from infra.stack.settings.stack import Settings

_PAGE = "docs/reference/not-confirmed.md"
_FACTS: Mapping[str, Callable[[Settings], object]] = {
    "own_cluster": lambda settings: settings.cluster.existing is None,
    "existing": lambda settings: settings.cluster.existing or settings.network.existing,
    "alerts": lambda settings: settings.budget and settings.budget.alerts,
    "mount": lambda settings: settings.mounted_bucket,
    "monitoring": lambda settings: settings.monitoring.enabled,
    "second_network": lambda settings: settings.second_network,
    "training": lambda settings: settings.training_jobs,
    "several_slices": lambda settings: any(job.slices.count > 1 for job in settings.jobs.values()),
    "check_slices": lambda settings: any(job.check_slices for job in settings.jobs.values()),
    "pathways": lambda settings: any(job.pathways for job in settings.jobs.values()),
}


@dataclass(frozen=True)
class Assumption:
    """One assumption about Google Cloud or TPUs."""

    stage: str
    subject: str
    assumption: str
    how: str
    """What to do to find out whether it holds."""
    concerns: str = ""

    def is_of(self, settings: Settings) -> bool:
        """Return whether a stack depends on it."""
        if fact := _FACTS.get(self.concerns):
            return bool(fact(settings))
        return not self.concerns or any(group.capacity.kind == self.concerns for group in settings.slices.values())


@cache
def assumptions() -> tuple[Assumption, ...]:
    """Return all assumptions."""
    stages = yaml.safe_load((files(__package__) / "unconfirmed.yaml").read_text())
    return tuple(Assumption(stage, **each) for stage, found in stages.items() for each in found)


def unconfirmed(settings: Settings) -> tuple[Assumption, ...]:
    """Return the assumptions that a stack in Google Cloud depends on."""
    return tuple(each for each in assumptions() if each.is_of(settings))


def as_table(found: tuple[Assumption, ...]) -> Table:
    """Return the section of `multislice doctor`."""
    return Table(
        title="Not confirmed on Google Cloud or TPUs",
        verdict=f"this stack depends on {len(found)} assumptions",
        state="notable",
        columns=("subject", "how to check"),
        rows=[(each.subject.replace("`", ""), each.how.replace("`", "")) for each in found],
        notes=[f"{_PAGE} says what is assumed"],
    )
