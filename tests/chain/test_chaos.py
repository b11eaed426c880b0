"""A few faults of the catalogue, so that a change which loses work is seen at once; `make chaos` strikes with all."""

import pytest

from chaos.fault import Fault
from chaos.faults import CATALOGUE
from chaos.field import STEADY, Field
from chaos.trial import carry_out
from sandbox.api_server import ApiServer
from tests.chain.stack import Chain, ignore

pytestmark = pytest.mark.timeout(900)

QUICK = ("two-hosts-killed", "host-preempted")


@pytest.fixture(scope="module")
def field(chain: Chain) -> Field:
    """The sandbox of the other tests, with a job that nothing has struck."""
    chain.engine(name=STEADY).up(ignore)
    chain.wait_for_end(STEADY, 240)
    return Field(chain.site, chain.programs, ApiServer.of(chain.site))


@pytest.mark.parametrize("fault", [fault for fault in CATALOGUE if fault.name in QUICK], ids=lambda fault: fault.name)
def test_what_the_entry_of_a_fault_demands_holds(field: Field, fault: Fault) -> None:
    assert carry_out(field, fault).broken == ()


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in CATALOGUE}) == len(CATALOGUE)
