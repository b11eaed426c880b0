import jax
import jax.numpy as jnp
import pytest

from workloads.spec import ExitCode
from workloads.training.failures import ReplicasDiffer, exit_code


def out_of_memory() -> BaseException:
    """Return the error that jaxlib raises, here for an array of a pebibyte."""
    try:
        jnp.zeros(1 << 48).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        return error
    raise AssertionError("this machine has a pebibyte to spare")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ReplicasDiffer("x"), ExitCode.SILENT_DAMAGE),
        (out_of_memory(), ExitCode.OUT_OF_MEMORY),
        (RuntimeError("INTERNAL: something else"), ExitCode.CRASH),
        (RuntimeError("UNKNOWN: Gloo AllGather failed: Connection reset by peer"), ExitCode.PEER_LOST),
        (KeyboardInterrupt(), ExitCode.CRASH),
    ],
)
def test_each_failure_has_the_exit_code_of_its_cause(error: BaseException, code: ExitCode) -> None:
    assert exit_code(error) == code
