from collections import Counter

import pytest

from tests.faults.catalogue import CATALOGUE
from tests.faults.fault import Fault
from tests.faults.trial import manifest


def test_every_fault_has_a_name_of_its_own() -> None:
    assert [name for name, times in Counter(fault.name for fault in CATALOGUE).items() if times > 1] == []


@pytest.mark.parametrize("fault", CATALOGUE, ids=lambda fault: fault.name)
def test_the_settings_of_a_fault_make_a_job_of_its_name(fault: Fault) -> None:
    assert manifest(fault)["metadata"]["name"] == fault.name
