"""A host that misbehaves from within: which process does, and in which call."""

import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest

from tests.faults.catalogue import CATALOGUE
from tests.faults.fault import Fault
from tests.faults.sabotage import VARIABLE, Sabotage, add_sabotages
from tests.faults.trial import manifest

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


def sabotages(fault: Fault) -> list[Sabotage]:
    """What misbehaves in the pods of a fault's job."""
    (slices,) = manifest(fault)["spec"]["replicatedJobs"]
    (container,) = slices["template"]["spec"]["template"]["spec"]["containers"]
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
