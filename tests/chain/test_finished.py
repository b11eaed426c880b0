"""The shared job has outlived the crash of a host: its losses, its logs, and what every command says of it."""

import json
import re
from collections import Counter

import pytest
import yaml

from cli.explain.finding import Cause
from infra.cluster.job_state import State
from tests.chain.commands import Followed, answered, typed
from tests.chain.people import jobset
from tests.chain.shared import HELD, JOB, SAVE_EVERY, STEPS
from tests.chain.stack import NAMESPACE, PATIENCE_SECONDS, Chain, wait_until


@pytest.fixture(scope="module")
def finished(stack: Chain) -> Chain:
    """The sandbox with the shared job at its end."""
    assert stack.wait_for_end(JOB)["terminalState"] == "Completed"
    return stack


def test_losses_are_the_same_bit_by_bit_where_the_starts_overlap(finished: Chain):
    times = Counter(int(line["step"]) for line in finished.steps(JOB))
    assert sorted(times) == list(range(1, STEPS + 1))
    assert max(times.values()) == 2, "no step was trained twice"
    losses = finished.losses(JOB)
    assert losses[STEPS] < losses[1] - 1


def test_the_last_checkpoint_is_in_the_bucket_and_both_starts_are_in_the_ledger(finished: Chain):
    assert {path.name for path in finished.run_folder(JOB).glob("checkpoints/*")} >= {str(STEPS)}
    assert len(list(finished.run_folder(JOB).glob("ledger/*-0.jsonl"))) == 2
    assert finished.world(JOB).counted == 1


def test_logs_were_followed_over_the_restart_to_the_end(finished: Chain, followed: Followed):
    assert followed.process.wait(PATIENCE_SECONDS) == 0
    lines = followed.output.read_text().splitlines()
    steps = [int(found[1]) for line in lines if (found := re.match(r"step (\d+)/", line))]
    (again,) = [place for place in range(1, len(steps)) if steps[place] <= steps[place - 1]]
    assert steps[:again] == list(range(1, steps[again - 1] + 1))
    (saved,) = [int(found[1]) for line in lines if (found := re.search(r"resumed at step (\d+) of", line))]
    assert saved in range(SAVE_EVERY, STEPS, SAVE_EVERY)
    assert steps[again:] == list(range(saved + 1, STEPS + 1))


@pytest.mark.costs(cpu_seconds=8)
def test_logs_are_those_that_the_command_line_asks_for(finished: Chain):
    leaders = typed(finished, "logs", JOB).splitlines()
    assert re.search(rf"resumed at step \d+ of {STEPS}", "\n".join(leaders))
    assert typed(finished, "logs", JOB, "--host", "slice-0-0").splitlines() == leaders
    assert typed(finished, "logs", JOB, "--tail", "2").splitlines() == leaders[-2:]
    assert typed(finished, "logs", JOB, "--since", "1h").splitlines() == leaders
    assert [json.loads(line)["text"] for line in typed(finished, "logs", JOB, "-o", "json").splitlines()] == leaders
    named = [line.partition("  ") for line in typed(finished, "logs", JOB, "--all").splitlines()]
    assert [text for host, _, text in named if host == "slice-0-0"] == leaders
    other = [text for host, _, text in named if host == "slice-1-0"]
    assert typed(finished, "logs", JOB, "--host", "slice-1-0").splitlines() == other
    assert f"new at step 0 of {STEPS}" in typed(finished, "logs", JOB, "--previous")
    assert typed(finished, "logs", JOB, "--follow").splitlines() == leaders


@pytest.mark.costs(cpu_seconds=8)
def test_status_list_explain_and_report_answer_people_and_programs(finished: Chain):
    assert f"step {STEPS} of {STEPS}" in typed(finished, "status", JOB)
    told = answered(finished, "status", JOB)
    assert told["stack"]["notes"] == []
    assert [node["ready"] for node in told["stack"]["nodes"]] == [True] * 8
    (job,) = told["jobs"]
    assert (job["name"], job["state"], job["step"], job["restarts"]) == (JOB, State.COMPLETED, STEPS, 1)
    assert job["usd"] > 0
    assert f"{JOB} completed, step {STEPS} of {STEPS}" in typed(finished, "status", JOB, "--watch")
    assert [line for line in typed(finished, "list").splitlines() if line.startswith(f"{JOB} ")]
    assert {job["name"] for job in answered(finished, "list")["jobs"]} >= {JOB, HELD}
    assert typed(finished, "explain", JOB).startswith(f"{JOB}  {State.COMPLETED}\n")
    causes = [finding["cause"] for finding in answered(finished, "explain", JOB)["findings"]]
    assert causes[0] == Cause.COMPLETED
    assert Cause.RESTARTED in causes
    assert answered(finished, "report", JOB)["goodput"]


def test_a_job_above_the_quota_is_explained_and_listed_in_its_place(finished: Chain):
    asks = jobset(NAMESPACE, "too-large", queue=NAMESPACE)
    asks["spec"]["replicatedJobs"][0]["replicas"] = 9
    finished.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(asks))

    def found() -> list[str]:
        findings = answered(finished, "explain", "too-large")["findings"]
        return [finding["what"] for finding in findings if finding["cause"] == Cause.QUOTA_TOO_SMALL]

    wait_until(lambda: bool(found()), lambda: typed(finished, "explain", "too-large"))
    assert "The job requests 36 chips, but its queue can have at most 32" in found()[0]
    (waits,) = [job for job in answered(finished, "list")["jobs"] if job["name"] == "too-large"]
    assert (waits["state"], waits["position"]) == (State.QUEUED, 1)
    finished.kubectl("delete", "jobset", "too-large", "-n", NAMESPACE)
