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


FULL_DISK = 'RESOURCE_EXHAUSTED: Error writing "local file \\"/x\\"": [OS error 28: ENOSPC No space left on device]'
COORDINATOR = (
    "RESOURCE_EXHAUSTED: too many requests\nAdditional GRPC error information from remote target coordination_service"
)


class ResourceExhausted(Exception):
    """An error of Google's clients for gRPC (`google.api_core.exceptions`)."""

    def __str__(self) -> str:
        return "429 RESOURCE_EXHAUSTED: quota exceeded"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ReplicasDiffer("x"), ExitCode.SILENT_DAMAGE),
        (out_of_memory(), ExitCode.OUT_OF_MEMORY),
        (ValueError(FULL_DISK), ExitCode.CRASH),
        (ResourceExhausted(), ExitCode.CRASH),
        (jax.errors.JaxRuntimeError(COORDINATOR), ExitCode.CRASH),
        (RuntimeError("INTERNAL: something else"), ExitCode.CRASH),
        (RuntimeError("UNKNOWN: Gloo AllGather failed: Connection reset by peer"), ExitCode.PEER_LOST),
        (KeyboardInterrupt(), ExitCode.CRASH),
    ],
)
def test_each_failure_has_the_exit_code_of_its_cause(error: BaseException, code: ExitCode) -> None:
    assert exit_code(error) == code
