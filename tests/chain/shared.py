"""The stack that most modules share: four slices, of which its job trains on two, and teams with members.

Only the first module waits for it to come up. Modules run in the order of the stack's life (`tests.chain.conftest`).
"""

from typing import Any

from tests.infra.one_job import unnamed
from tests.infra.recording import Values, stack_values

JOB = "shared"
"""Trains on two slices of two hosts; a host is killed in its midst."""
STEPS, SAVE_EVERY = 80, 20
ADA, GROUP = "ada@example.com", "second@example.com"
"""The member of the first team by name, and the group whose members are in the second."""
TEAMS = {
    "research": {"namespace": "research", "quota": {"trillium": 24}},
    "first": {"namespace": "first", "quota": {"trillium": 4}, "members": {"users": [ADA]}},
    "second": {"namespace": "second", "quota": {"trillium": 4}, "members": {"groups": [GROUP]}},
    "lab": {"namespace": "lab", "quota": {"trillium": 0}, "admission": "hold"},
}
HELD = "held"
"""A job of the team `lab`, which is on hold: it never starts."""

SLEEPER: Values = {
    "kind": "container",
    "team": "research",
    "slices": {"group": "trillium", "count": 1},
    "priority": "normal",
    "max_restarts": 1,
    "grace_seconds": 1,
    "image": f"elsewhere/sleeper@sha256:{'2' * 64}",
    "command": ["sleep"],
    "args": ["900"],
}
"""A program of one's own that only holds its chips."""


def shared(name: str = JOB, **job: object) -> Values:
    """The stack with a training job of that name, changed by `job`."""
    values: Any = stack_values("local")
    values["slices"]["trillium"]["count"] = 4
    values["cluster"]["security_group"] = "gke-security-groups@example.com"
    values["teams"] = TEAMS
    usual = unnamed(values)
    training = {"steps": STEPS, "save_every_steps": SAVE_EVERY, "evaluate_every_steps": STEPS}
    values["jobs"] = {
        name: {**usual, "existing_run": "new", "training": training, **job},
        HELD: {**usual, "team": "lab", "host_network": True},
    }
    return values


def held(**job: object) -> Values:
    """The local stack with a queue that starts nothing, to be changed."""
    values: Any = stack_values("local")
    values["job"] |= {"name": "held", **job}
    values["teams"]["research"]["admission"] = "hold"
    return values
