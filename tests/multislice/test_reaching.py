import pytest
from aiohttp import ClientConnectionError
from gcsfs.retry import HttpError
from google.auth.exceptions import DefaultCredentialsError

from infra.api_server import ApiError
from multislice.errors import BucketFailed, NoSuchStack
from multislice.reaching import bucket, cluster


@pytest.mark.parametrize("fault", [ApiError(401, "", "log in"), OSError("away")])
def test_a_cluster_that_does_not_answer_is_told_by_the_stacks_name(fault: Exception) -> None:
    with (
        pytest.raises(NoSuchStack, match="the cluster of stack dev cannot be asked: (log in|away); see"),
        cluster("dev"),
    ):
        raise fault


@pytest.mark.parametrize(
    "fault",
    [
        OSError("Forbidden: b/x\nnot you"),
        HttpError({"code": 401, "message": "Anonymous caller"}),
        ClientConnectionError(),
        DefaultCredentialsError("no credentials"),
    ],
)
def test_a_bucket_that_does_not_answer_is_told_by_its_name_with_the_role_that_it_takes(fault: Exception) -> None:
    with (
        pytest.raises(BucketFailed, match=r"gs://b cannot be read or written from here: \w.*storage\.objectUser"),
        bucket("b"),
    ):
        raise fault


def test_what_is_not_the_buckets_fault_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), bucket("b"):
        _ = 1 / 0
