import pytest

from workloads.spec import ExitCode
from workloads.training.failures import Diverged, InvalidSpec, Preempted, exit_code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidSpec("x"), ExitCode.INVALID_SPEC),
        (Diverged("x"), ExitCode.DIVERGED),
        (Preempted("x"), ExitCode.PREEMPTED),
        (RuntimeError("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm"), ExitCode.OUT_OF_MEMORY),
        (RuntimeError("INTERNAL: something else"), ExitCode.CRASH),
        (KeyboardInterrupt(), ExitCode.CRASH),
    ],
)
def test_each_failure_has_the_exit_code_of_its_cause(error: BaseException, code: ExitCode) -> None:
    assert exit_code(error) == code
