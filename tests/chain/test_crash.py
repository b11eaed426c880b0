"""A host of the shared job is killed in its midst; `test_finished` shows what becomes of the job."""

import os
import signal

from tests.chain.commands import Followed
from tests.chain.shared import JOB, SAVE_EVERY
from tests.chain.stack import Chain, wait_until


def test_a_killed_host_restarts_both_slices(stack: Chain, followed: Followed):
    wait_until(lambda: b"checkpoint at step" in followed.output.read_bytes(), followed.output.read_text)
    # Some steps beyond the last checkpoint, so that they are trained twice.
    stack.wait_for_step(JOB, max(stack.losses(JOB), default=0) // SAVE_EVERY * SAVE_EVERY + 3)
    before = {pod["metadata"]["uid"] for pod in stack.pods(JOB)}
    os.kill(stack.host_pid(f"{JOB}-slice-1-1"), signal.SIGKILL)
    wait_until(lambda: stack.jobset(JOB)["status"].get("restarts") == 1, lambda: str(stack.jobset(JOB)))
    wait_until(lambda: not before & {pod["metadata"]["uid"] for pod in stack.pods(JOB)}, lambda: str(stack.pods(JOB)))
