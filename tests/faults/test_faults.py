"""Every row of the catalogue, on a machine that does nothing else: `make faults`."""

from collections.abc import Callable, Mapping

import pytest

from tests.chain.stack import Chain
from tests.faults.catalogue import CATALOGUE
from tests.faults.fault import Fault
from tests.faults.page import cells
from tests.faults.trial import inject

pytestmark = [pytest.mark.complete, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("fault", CATALOGUE, ids=lambda fault: fault.name)
def test_a_job_with_a_fault_ends_as_its_row_says(
    chain: Chain, steady: Mapping[int, float], fault: Fault, record_property: Callable[[str, object], None]
) -> None:
    record_property("fault", fault.name)
    seen, failed = inject(chain, fault, steady)
    record_property("cells", cells(seen, failed))
    assert not failed, "\n".join(failed)
