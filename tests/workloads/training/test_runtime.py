import os
import signal
import time

import pytest

from workloads.training.runtime import Processes, join


@pytest.mark.parametrize(
    "environment",
    [
        {"TPU_WORKER_HOSTNAMES": "host-a", "TPU_WORKER_ID": "0", "MEGASCALE_NUM_SLICES": "1"},
        {"TPU_WORKER_HOSTNAMES": "host-a", "TPU_WORKER_ID": "0"},
    ],
)
def test_one_host_needs_no_coordinator_and_agrees_with_itself(environment: dict[str, str]) -> None:
    alone = join(environment)
    assert (alone.index, alone.count, alone.host, alone.leads) == (0, 1, "host-a", True)
    assert alone.share("key", "value") == "value"
    assert alone.gather("key", "value") == ["value"]


def test_sigterm_is_seen_at_the_next_step() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        alone = join({})
        assert not alone.told_to_stop(1)
        os.kill(os.getpid(), signal.SIGTERM)
        deadline = time.monotonic() + 10
        while not alone.told_to_stop(2) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert alone.told_to_stop(2)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_only_the_first_process_leads() -> None:
    assert [Processes(index, 3, "host").leads for index in range(3)] == [True, False, False]
