"""Which host is named as the cause; `tests/cli/explain/test_hosts.py` has the cases of records and events."""

from collections.abc import Iterable
from dataclasses import replace

from cli.observed.files import Failure, Files
from cli.observed.first_cause import HostEnd, first_cause
from infra.job_state import newest
from tests.cli.api_objects import START, pod
from tests.cli.explain.cases import JOB


def cause(pods: Iterable[dict[str, object]], *records: Failure) -> HostEnd:
    found = first_cause(replace(JOB, created=START, pods=newest(pods, START), files=Files(failures=records)), 0)
    assert found
    return found


def test_the_first_host_that_fails_is_the_cause() -> None:
    ends = [pod(0, 1, "Failed", exit_code=1, ended=62), pod(1, 0, "Failed", exit_code=137, ended=61)]
    assert (cause(ends).host, cause(ends).code) == ("slice-1-0", 137)


def test_a_host_that_only_lost_another_one_is_not_the_cause_although_it_ended_first() -> None:
    ends = [pod(0, 1, "Failed", exit_code=134, ended=61), pod(1, 1, "Failed", exit_code=137, ended=62)]
    assert (cause(ends).host, cause(ends).code) == ("slice-1-1", 137)


def test_a_record_with_fractions_of_a_second_comes_before_pods_that_ended_in_the_same_second() -> None:
    ends = [pod(0, 1, "Failed", exit_code=24, ended=61), pod(1, 1, "Failed", exit_code=24, ended=64)]
    for at in (60, 61.7):
        record = Failure(START + at, "tiny-slice-1-1.tiny", 24, "the step did not end", 0, 0)
        assert cause(ends, record).evidence == ("tiny-slice-1-1.tiny: the step did not end",)


def test_a_pod_that_is_being_deleted_is_no_cause() -> None:
    ends = newest([pod(0, 0, deleting=True)], START)
    assert first_cause(replace(JOB, created=START, pods=ends), 0) is None
