"""Heartbeats of nodes, against an API that remembers what was sent."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from infra.kubernetes import ApiServer
from sandbox.node_agent.leases import Leases
from sandbox.site import SILENT_ANNOTATION
from tests.sandbox.node_agent.pods import Json


@dataclass
class RecordedApi:
    """Remembers whose lease was renewed and who was declared ready; ends the round after `last`."""

    last: str
    ended: threading.Event
    renewed: list[str] = field(default_factory=list[str])
    ready: list[str] = field(default_factory=list[str])

    def request(self, _method: str, path: str, *_: object) -> None:
        self.renewed.append(path.rpartition("/")[2])
        if self.renewed[-1] == self.last:
            self.ended.set()

    def patch(self, path: str, *_: object) -> None:
        self.ready.append(path.split("/")[-2])


class Busy(dict[str, Any]):
    """A node at each look at which another one comes."""

    def __init__(self, node: Json, comes: Callable[[], None]):
        super().__init__(node)
        self.comes = comes

    def __getitem__(self, key: str) -> Any:
        self.comes()
        return super().__getitem__(key)


def node(name: str, annotations: Json) -> Json:
    return {"metadata": {"name": name, "uid": f"uid-of-{name}", "annotations": annotations}}


def round_of(*nodes: Json) -> RecordedApi:
    """What one round of heartbeats sends."""
    api = RecordedApi(nodes[-1]["metadata"]["name"], threading.Event())
    leases = Leases(cast("ApiServer", api))
    for each in nodes:
        leases.announce(each)
    send(leases, api)
    return api


def send(leases: Leases, api: RecordedApi) -> None:
    """One round."""
    runs = threading.Thread(target=leases.run, args=(api.ended,))
    runs.start()
    assert api.ended.wait(10)
    leases.stop_waiting()
    runs.join(10)


def test_a_node_that_is_not_ready_is_declared_so_beside_its_lease() -> None:
    api = round_of(node("one", {}), node("two", {}))
    assert (api.renewed[:2], api.ready) == (["one", "two"], ["one", "two"])


def test_of_a_silent_node_no_heartbeat_is_sent() -> None:
    api = round_of(node("one", {SILENT_ANNOTATION: "true"}), node("two", {}))
    assert (set(api.renewed), api.ready) == ({"two"}, ["two"])


def test_nodes_may_come_while_heartbeats_are_sent() -> None:
    api = RecordedApi("one", threading.Event())
    leases = Leases(cast("ApiServer", api))
    names = (f"new-{number}" for number in count())
    leases.announce(Busy(node("one", {}), lambda: leases.announce(node(next(names), {}))))
    send(leases, api)
    assert "one" in api.renewed
