"""How long kubelet waits before it starts a container again."""

import itertools
from collections.abc import Iterator

_FIRST_SECONDS, _LAST_SECONDS = 10, 300


def pauses_seconds() -> Iterator[int]:
    """Before each start: none before the first two, then ever longer."""
    delays = (min(_FIRST_SECONDS * 2**count, _LAST_SECONDS) for count in itertools.count())
    return itertools.chain((0, 0), delays)
