"""A check and what it says; and what a check may ask."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from cli.deployed import Deployed
from cli.doctor.google import Google, NotAsked
from infra.kubernetes import ApiServer, Json
from workloads.spec import Spec

if TYPE_CHECKING:
    from infra.settings.stack import Settings


class Verdict(StrEnum):
    """Of a check."""

    OK = "ok"
    FAULT = "fault"
    NOT_ASKED = "not asked"


class Check(Spec):
    """One question and its answer."""

    group: str = ""
    subject: str
    verdict: Verdict
    says: str
    """What was found, or why nobody was asked."""
    fix: str = ""
    """What repairs a fault."""


@dataclass(frozen=True)
class Scope:
    """The stack, and whom checks may ask of it."""

    stack: str
    settings: "Settings | None"
    """Of its file; None: there is none here that can be read."""
    deployed: Deployed | None
    """None: it is not up, or its cluster cannot be asked."""
    missing: str
    """Why not."""
    sandbox: bool
    google: Google | NotAsked
    silent: bool = False
    """Whether the cluster did not answer, so that nobody need wait for it again."""

    @property
    def api(self) -> ApiServer:
        """The cluster.

        Raises:
            NotAsked: it cannot be asked.
        """
        if self.silent:
            raise NotAsked("the cluster does not answer, see above")
        return self.standing.api

    @property
    def standing(self) -> Deployed:
        """The stack that stands.

        Raises:
            NotAsked: it does not.
        """
        if self.deployed is None:
            raise NotAsked("the stack cannot be asked, see credentials")
        return self.deployed

    def in_google(self) -> Google:
        """Google Cloud.

        Raises:
            NotAsked: the stack is in the sandbox, or there are no credentials.
        """
        if isinstance(self.google, NotAsked):
            raise self.google
        return self.google

    def listed(self, path: str) -> list[Json]:
        """The objects of a collection of the cluster."""
        return self.api.request("GET", path)["items"]


type Findings = Iterator[Check]


def ok(subject: str, says: str) -> Check:
    """Nothing is in the way."""
    return Check(subject=subject, verdict=Verdict.OK, says=says)


def fault(subject: str, says: str, fix: str) -> Check:
    """Something is, and this repairs it."""
    return Check(subject=subject, verdict=Verdict.FAULT, says=says, fix=fix)


def not_asked(subject: str, why: str) -> Check:
    """Nobody could be asked."""
    return Check(subject=subject, verdict=Verdict.NOT_ASKED, says=why)
