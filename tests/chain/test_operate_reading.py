"""What is told of a stack that stands: logs over a restart, and why jobs crashed, were evicted, or wait.

Most tests share one job whose host is killed, and build on each other's state.
"""

import io
import json
import os
import re
import signal
import threading
from collections.abc import Generator

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from chaos.field import NAMESPACE, SAVE_EVERY
from chaos.rival import rival
from cli.deployed import Deployed, deployed
from cli.explain.explain import explain
from cli.explain.finding import Cause, Finding
from cli.logs.command import Asked, logs
from cli.multislice import app
from cli.observed.observe import Observer, job_of
from cli.observed.snapshot import State
from cli.status.command import jobs, status
from tests.chain.people import jobset
from tests.chain.stack import PATIENCE_SECONDS, Chain, ignore, wait_until
from tests.infra.recording import Values

JOB = "watched"
STEPS = 6 * SAVE_EVERY
"""So many that a host is struck in their midst on the fastest machine."""
FOLLOW = Asked(JOB, False, None, True, False, None, None, False)
ONCE = Asked(JOB, False, None, False, False, None, None, False)


@pytest.fixture(scope="module")
def stack(chain: Chain) -> Generator[Deployed]:
    """The local stack, which is up and whose job trains."""
    engine = chain.engine(name=JOB, training=training(STEPS))
    engine.up(ignore)
    yield deployed("local", chain.site.root)
    engine.destroy(ignore, stop_jobs=True)


def training(steps: int) -> Values:
    return {"steps": steps, "save_every_steps": SAVE_EVERY, "evaluate_every_steps": steps}


def console() -> Console:
    return Console(file=io.StringIO(), width=120, highlight=False)


def told(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def typed(chain: Chain, *words: str) -> str:
    """What `multislice` prints when somebody types that about the stack in the sandbox; it goes well."""
    here = ("-s", "local", "--engine", "sandbox", "--sandbox", str(chain.site.root))
    ended = CliRunner().invoke(app, [words[0], *here, *words[1:]], env={"COLUMNS": "160"})
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def findings(stack: Deployed, name: str) -> list[Finding]:
    snapshot = Observer(stack).look(name)
    return [*explain(snapshot, job_of(stack, snapshot, name))]


def wait_for_finding(stack: Deployed, name: str, cause: Cause) -> Finding:
    found: list[Finding] = []

    def seen() -> bool:
        found[:] = [finding for finding in findings(stack, name) if finding.cause is cause]
        return bool(found)

    wait_until(seen, lambda: str(findings(stack, name)))
    return found[0]


def test_logs_are_followed_over_the_restart_of_a_killed_host_to_the_end(chain: Chain, stack: Deployed) -> None:
    followed, statuses = console(), list[int]()
    thread = threading.Thread(target=lambda: statuses.append(logs(stack, FOLLOW, chain.site.root, followed)))
    thread.start()
    wait_until(lambda: "checkpoint at step" in told(followed), lambda: told(followed))
    os.kill(chain.host_pid(f"{JOB}-slice-1-1"), signal.SIGKILL)
    assert chain.wait_for_end(JOB)["restarts"] == 1
    thread.join(PATIENCE_SECONDS)
    assert statuses == [0]
    lines = told(followed).splitlines()
    steps = [int(found[1]) for line in lines if (found := re.match(r"step (\d+)/", line))]
    resumed = [place for place in range(1, len(steps)) if steps[place] <= steps[place - 1]]
    (again,) = resumed
    assert steps[:again] == list(range(1, steps[again - 1] + 1))
    (saved,) = [int(found[1]) for line in lines if (found := re.search(r"resumed at step (\d+) of", line))]
    assert saved in range(SAVE_EVERY, STEPS, SAVE_EVERY)
    assert steps[again:] == list(range(saved + 1, STEPS + 1))


def test_the_log_that_is_read_once_is_that_of_the_newest_start(chain: Chain, stack: Deployed) -> None:
    shown = console()
    assert logs(stack, ONCE, chain.site.root, shown) == 0
    assert re.search(rf"run {chain.run_folder(JOB).name}: resumed at step \d+ of {STEPS}", told(shown))


def test_the_start_before_is_in_the_sandboxs_own_logs(chain: Chain, stack: Deployed) -> None:
    shown = console()
    asked = Asked(JOB, False, None, False, True, None, None, False)
    assert logs(stack, asked, chain.site.root, shown) == 0
    assert f"run {chain.run_folder(JOB).name}: new at step 0 of {STEPS}" in told(shown)


def test_a_killed_host_is_named_as_the_cause_of_the_restart(stack: Deployed) -> None:
    restart = wait_for_finding(stack, JOB, Cause.RESTARTED)
    assert "estart" in restart.what
    assert findings(stack, JOB)[0].cause is Cause.COMPLETED


def test_status_tells_stack_job_and_dollars(stack: Deployed) -> None:
    shown = console()
    assert status(stack, None, shown, json=True) == 0
    answer = json.loads(told(shown))
    assert answer["stack"]["notes"] == []
    (job,) = answer["jobs"]
    assert (job["state"], job["step"], job["restarts"]) == (State.COMPLETED, STEPS, 1)
    assert job["usd"] > 0
    assert [node["ready"] for node in answer["stack"]["nodes"]] == [True] * 4


@pytest.mark.usefixtures("stack")
def test_logs_are_those_that_the_command_line_asks_for(chain: Chain) -> None:
    leaders = typed(chain, "logs").splitlines()
    assert re.search(rf"resumed at step \d+ of {STEPS}", "\n".join(leaders))
    assert typed(chain, "logs", JOB, "--host", "slice-0-0").splitlines() == leaders
    assert typed(chain, "logs", "--tail", "2").splitlines() == leaders[-2:]
    assert typed(chain, "logs", "--since", "1h").splitlines() == leaders
    assert [json.loads(line)["text"] for line in typed(chain, "logs", "--json").splitlines()] == leaders
    named = [line.partition("  ") for line in typed(chain, "logs", "--all").splitlines()]
    assert [text for host, _, text in named if host == "slice-0-0"] == leaders
    other = [text for host, _, text in named if host == "slice-1-0"]
    assert typed(chain, "logs", "--host", "slice-1-0").splitlines() == other
    assert f"new at step 0 of {STEPS}" in typed(chain, "logs", "--previous")
    assert typed(chain, "logs", "--follow").splitlines() == leaders


@pytest.mark.usefixtures("stack")
def test_status_list_explain_and_report_answer_people_and_programs(chain: Chain) -> None:
    assert f"step {STEPS} of {STEPS}" in typed(chain, "status", JOB)
    (job,) = json.loads(typed(chain, "status", "--json"))["jobs"]
    assert (job["name"], job["state"]) == (JOB, State.COMPLETED)
    assert f"{JOB} completed, step {STEPS} of {STEPS}" in typed(chain, "status", "--watch")
    assert [line for line in typed(chain, "list").splitlines() if line.startswith(f"{JOB} ")]
    assert [job["name"] for job in json.loads(typed(chain, "list", "--json"))["jobs"]] == [JOB]
    assert typed(chain, "explain").startswith(f"{JOB}  {State.COMPLETED}\n")
    told = json.loads(typed(chain, "explain", JOB, "--json"))
    assert told["findings"][0]["cause"] == Cause.COMPLETED
    assert json.loads(typed(chain, "report", JOB, "--json"))["goodput"]


def test_a_job_above_the_quota_is_explained_and_listed_in_its_place(chain: Chain, stack: Deployed) -> None:
    asks = jobset(NAMESPACE, "too-large", queue=NAMESPACE)
    asks["spec"]["replicatedJobs"][0]["replicas"] = 5
    chain.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(asks))
    found = wait_for_finding(stack, "too-large", Cause.QUOTA_TOO_SMALL)
    assert "The job asks for 20 chips, and its queue can have 16 at most" in found.what
    listed = console()
    jobs(stack, listed, json=True)
    (waits,) = [job for job in json.loads(told(listed))["jobs"] if job["name"] == "too-large"]
    assert (waits["state"], waits["position"]) == (State.QUEUED, 1)
    chain.kubectl("delete", "jobset", "too-large", "-n", NAMESPACE)


def test_an_evicted_job_is_told_by_whom(chain: Chain, stack: Deployed) -> None:
    # In the place of the first one, so that the queue is its own.
    chain.engine(name="evicted", training=training(100_000)).up(ignore)
    chain.wait_for_step("evicted", SAVE_EVERY)
    with rival(chain.field, "evicted"):
        preempted = wait_for_finding(stack, "evicted", Cause.PREEMPTED)
        assert "for it has a higher priority in the same queue" in preempted.what
        assert "multislice priority evicted high -s local" in preempted.next[-1]
    chain.wait_for_step("evicted", max(chain.losses("evicted")) + 2)
