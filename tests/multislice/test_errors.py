import subprocess
import sys

import pytest

from multislice.errors import BucketFailed, bucket

_IN_A_PROCESS_OF_ITS_OWN = """
import pytest
from aiohttp import ClientConnectionError
from gcsfs.retry import HttpError
from google.auth.exceptions import DefaultCredentialsError

from multislice.errors import BucketFailed, bucket

found = r"gs://b cannot be read or written from here: \\w.*storage\\.objectUser"
for fault in (
    HttpError({"code": 401, "message": "Anonymous caller"}),
    ClientConnectionError(),
    DefaultCredentialsError("no credentials"),
):
    with pytest.raises(BucketFailed, match=found), bucket("b"):
        raise fault
"""
"""Code for a separate process, because tests of the program import Pulumi, and gcsfs cannot be imported with it."""


def test_a_bucket_that_does_not_answer_is_reported_by_its_name_with_the_role_that_it_takes() -> None:
    with (
        pytest.raises(BucketFailed, match=r"gs://b cannot be read or written from here: F.*storage\.objectUser"),
        bucket("b"),
    ):
        raise OSError("Forbidden: b/x\nnot you")
    subprocess.run([sys.executable, "-c", _IN_A_PROCESS_OF_ITS_OWN], check=True, timeout=240)


def test_what_is_not_the_buckets_fault_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), bucket("b"):
        _ = 1 / 0
