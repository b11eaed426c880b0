"""A host that misbehaves from within: which process does, and in which call."""

import importlib
import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

from chaos.faults import CATALOGUE
from chaos.sabotage import VARIABLE, Sabotage, add_sabotages, wrap
from chaos.target import Fault

RAISES = Sabotage("raise", "textwrap:dedent", hosts=("slice-1-0",), calls=(2, 2), about="row")
ITS_PLACE = {"MEGASCALE_SLICE_ID": "1", "TPU_WORKER_ID": "0", "JOB_RESTART_ATTEMPT": "0"}
SECOND_CALL = "import textwrap; print([textwrap.dedent(text) for text in ('row 1', 'other', 'other', 'row 2')])"


def ran(what: Sabotage, place: dict[str, str], program: str) -> subprocess.CompletedProcess[str]:
    """A process with what the pods of the edited JobSet would have in their environment."""
    container: dict[str, Any] = {"env": []}
    pods = {"template": {"spec": {"template": {"spec": {"containers": [container]}}}}}
    add_sabotages(what)({"spec": {"replicatedJobs": [pods]}})
    environment = {**os.environ, **{entry["name"]: entry["value"] for entry in container["env"]}, **place}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)


def test_the_call_misbehaves_whose_number_is_named_among_those_it_is_about() -> None:
    found = ran(RAISES, ITS_PLACE, SECOND_CALL)
    assert found.stderr.endswith("ValueError: no such row\n")
    assert ran(replace(RAISES, calls=(3, 3)), ITS_PLACE, SECOND_CALL).returncode == 0


@pytest.mark.parametrize("other", ["MEGASCALE_SLICE_ID", "TPU_WORKER_ID", "JOB_RESTART_ATTEMPT"])
def test_other_hosts_and_other_starts_are_well(other: str) -> None:
    assert ran(RAISES, {**ITS_PLACE, other: "2"}, SECOND_CALL).stdout == "['row 1', 'other', 'other', 'row 2']\n"


@pytest.mark.parametrize(("restarts", "misbehaves"), [("0", True), ("1", False)])
def test_a_slice_that_restarts_alone_has_its_own_number_and_counts_its_restarts(
    restarts: str, misbehaves: bool
) -> None:
    alone = {"MEGASCALE_SLICE_ID": "0", "JOB_SLICE": "1", "JOB_SLICE_RESTART_ATTEMPT": restarts}
    assert bool(ran(RAISES, {**ITS_PLACE, **alone}, SECOND_CALL).returncode) == misbehaves


def test_an_array_is_damaged_after_it_was_filled() -> None:
    def fill(_: str, arrays: list[np.ndarray]) -> int:
        arrays[0][:] = 1.0
        return 7

    arrays = [np.zeros(2, np.float32), np.zeros(2, np.float32)]
    assert wrap(fill, replace(RAISES, deed="damage", calls=(1, 1), about=""))("state", arrays) == 7
    assert (arrays[0].tolist()[0] != 1.0, arrays[0].tolist()[1], arrays[1].tolist()) == (True, 1.0, [0.0, 0.0])


CUTS = """
import os, socket, textwrap
own = socket.create_server(("127.9.1.1", 0))
others = [("127.9.1.2", int(port)) for port in os.environ["PORTS"].split()]
clients = [socket.create_connection(place) for place in (own.getsockname(), *others)]
own_side = own.accept()[0]
textwrap.dedent("row")
for client in clients:
    client.setblocking(False)
    try: print("ended", client.recv(1))
    except BlockingIOError: print("stays")
"""


def test_all_connections_but_those_to_itself_and_to_the_store_are_cut() -> None:
    with socket.create_server(("127.9.1.2", 0)) as host, socket.create_server(("127.9.1.2", 0)) as coordinator:
        ports = [server.getsockname()[1] for server in (host, coordinator)]
        place = {
            **ITS_PLACE,
            "STORAGE_EMULATOR_HOST": "http://127.9.1.3:4443",
            "JAX_COORDINATOR_BIND_ADDRESS": f"127.9.1.1:{ports[1]}",
            "PORTS": " ".join(map(str, ports)),
        }
        found = ran(replace(RAISES, deed="cut", calls=(1, 1)), place, CUTS)
        stored = ran(
            replace(RAISES, deed="cut", calls=(1, 1)),
            place | {"STORAGE_EMULATOR_HOST": "http://127.9.1.2:4443"},
            CUTS,
        )
    assert (found.stdout, found.stderr) == ("stays\nended b''\nstays\n", "")
    assert stored.stdout == "stays\n" * 3


def sabotages(fault: Fault) -> list[Sabotage]:
    """What misbehaves in the pods of a fault's job."""
    container: dict[str, Any] = {"env": []}
    pods = {"template": {"spec": {"template": {"spec": {"containers": [container]}}}}}
    fault.edit({"metadata": {}, "spec": {"replicatedJobs": [pods]}})
    described = [entry["value"] for entry in container["env"] if entry["name"] == VARIABLE]
    return [Sabotage(**facts) for text in described for facts in json.loads(text)]


@pytest.mark.parametrize("fault", CATALOGUE, ids=lambda fault: fault.name)
def test_the_functions_that_a_fault_sabotages_exist(fault: Fault) -> None:
    for each in sabotages(fault):
        module, _, name = each.function.partition(":")
        assert callable(attrgetter(name)(importlib.import_module(module)))


def test_a_coroutine_misbehaves_when_it_is_awaited() -> None:
    program = "import asyncio.tasks; made = asyncio.wait_for(asyncio.sleep(0), 9); print('made'); asyncio.run(made)"
    found = ran(replace(RAISES, function="asyncio.tasks:wait_for", calls=(1, 1), about=""), ITS_PLACE, program)
    assert found.stdout == "made\n"
    assert "ValueError: no such row" in found.stderr
