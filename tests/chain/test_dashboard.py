"""The dashboard as a person starts it: a process of its own, beside a stack that stands."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from urllib.error import HTTPError

import pytest

from chaos.field import STEPS
from sandbox.daemon import CHECKOUT
from tests.chain.stack import Chain, ignore, wait_until

JOB = "shown"


@pytest.fixture(scope="module")
def trained(chain: Chain) -> Generator[Chain]:
    """The sandbox with the local stack up and its job complete."""
    engine = chain.engine(name=JOB)
    engine.up(ignore)
    chain.wait_for_end(JOB)
    yield chain
    engine.destroy(ignore, stop_jobs=True)


def test_the_page_shows_the_stack_until_ctrl_c(trained: Chain) -> None:
    options = ["--stack", "local", "--engine", "sandbox", "--sandbox", str(trained.site.root)]
    command = [sys.executable, "-m", "cli.multislice", "dashboard", *options]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:[0-9]+/", process.stdout.readline())
        assert found is not None
        wait_until(lambda: seen(found[0]), lambda: "the page never saw the cluster")
        with urllib.request.urlopen(f"{found[0]}state", timeout=60) as answer:
            state = json.load(answer)
        with urllib.request.urlopen(found[0], timeout=60) as answer:
            assert b"<h1" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    (job,) = [job for job in state["jobs"] if job["summary"]["name"] == JOB]
    assert (job["summary"]["state"], job["summary"]["step"], len(job["hosts"])) == ("completed", STEPS, 4)
    assert (len(job["losses"]), state["notes"]) == (STEPS, [])


def seen(url: str) -> bool:
    """Whether the page has had its first look, which takes the longest."""
    try:
        with urllib.request.urlopen(f"{url}state", timeout=60):
            return True
    except HTTPError:
        return False
