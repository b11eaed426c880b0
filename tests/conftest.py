"""For all tests: JAX on eight CPU devices, Ctrl-C, property tests, what a test may cost, and an end."""

import gc
import os
import signal
import sys
import threading

from hypothesis import HealthCheck, settings

from tests.cost import pytest_configure, pytest_fixture_setup, pytest_runtest_call, pytest_sessionfinish

__all__ = ["pytest_configure", "pytest_fixture_setup", "pytest_runtest_call", "pytest_sessionfinish"]

# JAX reads them once, when it is imported.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = "8"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
# Programs for several CPU devices must not be loaded (`sandbox.tpu_environment`), and those for absent chips cannot be.
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)

# Python searches for garbage after every 2,000 new objects, and finds little. It takes a tenth of the CPU time of tests
# that import large libraries and build many plans.
gc.set_threshold(100_000)

# Whoever is started in the background by a shell ignores Ctrl-C, and so would the commands that are started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests run beside others, which take the cores for as long as they like.
usual = settings.get_profile(settings.get_current_profile_name())
settings.register_profile("unhurried", usual, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# `make fuzz` takes the profile `fuzz`.
settings.register_profile(
    "fuzz", max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

_MAX_END_SECONDS = 60.0


def pytest_terminal_summary(exitstatus: int) -> None:
    """End the process soon after the tests.

    A program whose engine ended early, such as one that left its plan, may wait for an answer of it forever, and Python
    waits for the thread of that program.
    """

    def end() -> None:
        sys.stdout.flush()
        os._exit(exitstatus)

    timer = threading.Timer(_MAX_END_SECONDS, end)
    timer.daemon = True
    timer.start()
