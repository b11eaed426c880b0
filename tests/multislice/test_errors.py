import pytest
from aiohttp import ClientConnectionError
from gcsfs.retry import HttpError
from google.auth.exceptions import DefaultCredentialsError

from multislice.errors import BucketFailed, bucket


@pytest.mark.parametrize(
    "error",
    [
        OSError("Forbidden: b/x\nnot you"),
        HttpError({"code": 401, "message": "Anonymous caller"}),
        ClientConnectionError(),
        DefaultCredentialsError("no credentials"),
    ],
)
def test_a_bucket_that_does_not_answer_is_reported_by_its_name_with_the_role_that_it_takes(error: Exception) -> None:
    found = r"gs://b cannot be read or written from here: \w.*storage\.objectUser"
    with pytest.raises(BucketFailed, match=found), bucket("b"):
        raise error


def test_what_is_not_the_buckets_fault_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), bucket("b"):
        _ = 1 / 0
