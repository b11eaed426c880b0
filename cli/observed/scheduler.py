"""Says in words why the scheduler has no node for a pod."""

import re

_MESSAGE = re.compile(r"0/(?P<nodes>\d+) nodes are available: (?P<reasons>.+?)\.(?= |$)")
"""The scheduler's message (kubernetes/pkg/scheduler/framework/types.go), without what it says of preemption."""
_REASON = re.compile(r"(?P<count>\d+) (?P<reason>.+?)(?=, \d+ |$)")
CORDONED, TAINTED = "were unschedulable", "untolerated taint"
"""Parts of the scheduler's message about nodes that are cordoned, or have a taint, such as one that is not ready."""
_WORDS = (
    (CORDONED, "cordoned"),
    (TAINTED, "not ready, or with another taint"),
    ("Insufficient google.com/tpu", "without free chips"),
    (r"Insufficient (?P<resource>\S+)", r"with too little free \g<resource>"),
    ("node affinity/selector", "not of the job's slices"),
    ("anti-affinity", "in the slice of other pods"),
    ("pod affinity", "outside the slice of the other hosts"),
    ("Too many pods", "with as many pods as they may have"),
)
"""Words for the filters' reasons (kubernetes/pkg/scheduler/framework/plugins), by a pattern."""


def in_words(message: str) -> str:
    """Return the scheduler's message in a few words; the message itself if it has another form."""
    found = _MESSAGE.match(message)
    if found is None:
        return message
    reasons = [f"{each['count']} {_say(each['reason'])}" for each in _REASON.finditer(found["reasons"])]
    return f"of {found['nodes']} nodes {', '.join(reasons)}" if reasons else message


def _say(reason: str) -> str:
    matches = ((re.search(pattern, reason), words) for pattern, words in _WORDS)
    return next((found.expand(words) for found, words in matches if found), reason)
