"""Findings of the rules on a plan, as reported by the engine."""

from pulumi.automation import EngineEvent
from pulumi.automation.events import PolicyEvent


class Findings:
    """The policy events of a preview or an `up`."""

    def __init__(self) -> None:
        self.told: list[PolicyEvent] = []

    def __call__(self, event: EngineEvent) -> None:
        if event.policy_event:
            self.told.append(event.policy_event)

    def of(self, rule: str, resource: str) -> list[PolicyEvent]:
        """What a rule says of the resources whose names start so."""
        return [
            told
            for told in self.told
            if told.policy_name == rule and (told.resource_urn or "").rpartition("::")[2].startswith(resource)
        ]
