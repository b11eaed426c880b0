"""Rules of the place: region, zone and addresses."""

import re
from collections.abc import Iterator

from infra.faults import Fault
from infra.rules.draft import Draft


def check(draft: Draft) -> Iterator[Fault]:
    """Faults of the sections `cloud` and `network`."""
    yield from _zone(draft)


def _zone(draft: Draft) -> Iterator[Fault]:
    if draft.cloud and not re.fullmatch(rf"{re.escape(draft.cloud.region)}-[a-z0-9]+", draft.cloud.zone):
        yield Fault(
            "cloud.zone",
            f"a zone of {draft.cloud.region}, such as {draft.cloud.region}-b",
            repr(draft.cloud.zone),
            "change cloud.zone or cloud.region",
        )
