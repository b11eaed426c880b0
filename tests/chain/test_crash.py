"""The trainer of a host of the shared job is killed in its midst; `test_finished` shows what becomes of the job."""

import os
import signal
import time

from tests.chain.commands import Followed
from tests.chain.shared import JOB, SAVE_EVERY
from tests.chain.stack import Chain, wait_until

SETTLED_SECONDS = 3.0
"""Time after which the records of all finished steps can be read; a trainer writes them up to two seconds late."""


def test_a_killed_trainer_starts_again_with_all_others_in_the_same_pods(stack: Chain, followed: Followed):
    wait_until(lambda: b"checkpoint at step" in followed.output.read_bytes(), followed.output.read_text)
    before = {pod["metadata"]["uid"] for pod in stack.pods(JOB)}
    pid = stop_beyond_a_save(stack)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: stack.world(JOB).number == 1, lambda: str(stack.world(JOB)))
    assert before == {pod["metadata"]["uid"] for pod in stack.pods(JOB)}


def stop_beyond_a_save(stack: Chain) -> int:
    """Stop a host, and with it all others, where some steps after the last save are recorded; they are trained twice.
    Return its process."""
    pid = stack.trainer_pid(f"{JOB}-slice-1-1")
    while True:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(SETTLED_SECONDS)
        newest = max(stack.losses(JOB))
        if newest % SAVE_EVERY:
            return pid
        os.kill(pid, signal.SIGCONT)
        stack.wait_for_step(JOB, newest + 1)
