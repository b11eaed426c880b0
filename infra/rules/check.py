"""What must hold between the sections of a stack file.

Owns the list of rules, each a function from what could be read to the faults it finds, so that a
fault in one section never hides one in another. Types of single fields lie in `infra.stack_file`,
sizes of a training job in `workloads.spec`.
"""

from collections.abc import Iterator

from infra.accelerators import SliceShape
from infra.faults import Fault
from infra.rules import admission, budget, controllers, environment, jobs, place, prices, scheduling, slices, teams
from infra.rules.draft import Draft


def check(draft: Draft) -> Iterator[Fault]:
    """Every fault between the sections of `draft`."""
    shapes: dict[str, SliceShape] = {}
    for name, group in draft.written_slices.items():
        fault = slices.offered(f"slices.{name}", group)
        if fault:
            yield fault
        elif name in draft.slices:
            shapes[name] = draft.slices[name].shape
            yield from slices.check(f"slices.{name}", draft.slices[name])
            yield from slices.second_network(name, draft)
    yield from place.check(draft, shapes)
    yield from controllers.check(draft, shapes)
    yield from teams.check(draft, shapes)
    yield from scheduling.check(draft)
    yield from jobs.check(draft, shapes)
    yield from admission.check(draft, shapes)
    yield from prices.check(draft, shapes)
    yield from budget.check(draft, shapes)
    yield from environment.check(draft)
