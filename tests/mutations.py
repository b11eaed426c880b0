"""Break the sources in small ways, one at a time, and check that a test fails for each.

    python -m tests.mutations [NAMES...]

Runs in a temporary copy of the checkout. `make test` does not run it: it checks the tests, not the sources.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import cache_from_source
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import pytest

from tests.checkout import copy_checkout


class Mutation(NamedTuple):
    """One small way to break a source file, with the tests that must notice it."""

    name: str
    file: str
    tests: str
    """What to pass to pytest, separated by spaces."""
    find: str
    """Text that occurs exactly once in the file."""
    replace: str


def _of(file: str, tests: str, changes: Mapping[str, tuple[str, str]]) -> tuple[Mutation, ...]:
    return tuple(Mutation(name, file, tests, *change) for name, change in changes.items())


TRAINING = "tests/workloads/training"

PROGRAM = (
    *_of(
        "infra/queues.py",
        "tests/infra/test_program.py",
        {
            "queues-role-before-policies": ("access.role(team.namespace), around)", "access.role(team.namespace), [])"),
            "queues-order-of-policies": ("rendered, declared[-1:])", "rendered, [])"),
            "queues-queue-before-quota": ("opts=self._after([queue])", "opts=self._after([])"),
        },
    ),
    *_of(
        "infra/stack/cost.py",
        "tests/infra/stack/test_cost.py",
        {
            "bill-slices-of-a-job": ("_hour, job.slices.count * group.shape.chips)", "_hour, group.chips)"),
            "bill-when-chips-are-billed": ("return group.chips, group.billed, ", "return group.chips, "),
        },
    ),
    *_of(
        "infra/stack/settings/rules_teams.py",
        "tests/infra/stack/settings/test_rules_teams.py",
        {"budget-dearest-group": ("max(known)", "min(known)")},
    ),
    *_of(
        "infra/review/obstacles.py",
        "tests/infra/review/test_obstacles.py",
        {"obstacles-narrower-network": ("IPv4Network(after).supernet_of(", "IPv4Network(after).overlaps(")},
    ),
)

POLICY = (
    *_of(
        "policy/rules/chips.py",
        "tests/policy/rules/test_chips.py",
        {
            "policy-256-chips": ("chips > _MAX_ON_DEMAND_CHIPS", "chips >= _MAX_ON_DEMAND_CHIPS"),
            "policy-checkpoints-in-a-bucket": (' or not path.startswith("gs://")', ""),
        },
    ),
    *_of(
        "policy/slices.py",
        "tests/policy/rules/test_chips.py",
        {"policy-flex-start-is-preemptible": ("spot or self.flex_start", "spot")},
    ),
    *_of(
        "policy/exceptions.py",
        "tests/policy/test_exceptions.py",
        {"policy-last-day-of-an-exception": ("today > self.expires_on", "today >= self.expires_on")},
    ),
)

COMMANDS = (
    *_of(
        "cli/explain/explain.py",
        "tests/cli/explain",
        {
            "explain-finished-holders": (' and not each.holds("Finished")', ""),
            "explain-since-of-a-refusal": ("since = max(workload.created, said.since)", "since = said.since"),
        },
    ),
    *_of(
        "cli/explain/hosts.py",
        "tests/cli/explain",
        {
            "explain-silence": ("quiet > max(", "quiet > min("),
        },
    ),
    *_of(
        "cli/observed/causes.py",
        "tests/cli/explain tests/cli/observed",
        {
            "explain-victim-as-the-cause": ("(*cause_order(end.code or 0, end.at), not", "(end.at, not"),
            "explain-words-of-an-earlier-start": (" and fail.at >= since", ""),
        },
    ),
    *_of(
        "cli/observed/snapshot.py",
        "tests/cli/explain tests/cli/observed",
        {"explain-whole-seconds": ("WHOLE_SECOND = 1.0", "WHOLE_SECOND = 0.0")},
    ),
)

WORKLOADS = (
    *_of(
        "multislice_run/records/events.py",
        "tests/workloads/report/test_goodput.py",
        {"goodput-last-save": ("RUN_SUMMARY: Cause.SAVE", "RUN_SUMMARY: Cause.OTHER")},
    ),
    *_of(
        "workloads/training/data.py",
        f"{TRAINING}/test_data.py",
        {
            "data-seed": ("(self.seed + number", "(number"),
            "data-fewer-rows-than-a-batch": ("if dataset.training_count < trained:", "if False:"),
        },
    ),
    *_of(
        "workloads/training/fingerprint.py",
        f"{TRAINING}/test_fingerprint.py",
        {
            "fingerprint-odd-factor": ("(position | 1)", "position"),
            "fingerprint-second-half-without-position": ("_mixed(bits ^ position)", "_mixed(bits)"),
        },
    ),
    *_of(
        "workloads/training/step.py",
        f"{TRAINING}/test_model.py::test_loss_and_gradients_on_a_mesh_equal_a_plain_model_on_one_device[completions-1073741824]",
        {"step-ignored-tokens": ("if not self._spec.training.counts_all:", "if False:")},
    ),
    *_of(
        "workloads/training/optimizer.py",
        f"{TRAINING}/test_model.py::test_loss_and_gradients_on_a_mesh_equal_a_plain_model_on_one_device[completions-1073741824]",
        {"optimizer-global-norm": ("_psum(sum(parts, jnp.float32(0)), axes)", "sum(parts, jnp.float32(0))")},
    ),
    *_of(
        "workloads/training/step.py",
        f"{TRAINING}/test_loop.py::test_steps_that_are_not_finite_are_skipped_until_there_are_too_many",
        {"step-norm-is-finite": ("jnp.isfinite(loss) & jnp.isfinite(norm)", "jnp.isfinite(loss)")},
    ),
    *_of(
        "workloads/training/checkpoint.py",
        f"{TRAINING}/test_resumption.py::test_a_checkpoint_with_the_weights_that_failed_is_moved_away_and_saved_again",
        {"checkpoint-go-back": ("if step >= before", "if step > before")},
    ),
    *_of(
        "workloads/training/writer.py",
        f"{TRAINING}/test_writer.py::test_of_two_processes_of_one_start_the_later_one_goes_on_and_keeps_the_lease",
        {"writer-lease-of-an-own-start": ("found.start <= self._own.start)", "found.start < self._own.start)")},
    ),
    *_of(
        "workloads/training/links.py",
        f"{TRAINING}/test_links.py",
        {
            "links-take-connections-without-the-key": ("if is_proven and sender", "if sender"),
            "links-take-recorded-greetings": (
                "_Guest(connection, secrets.token_bytes(_NONCE_BYTES),",
                "_Guest(connection, bytes(_NONCE_BYTES),",
            ),
            "links-believe-a-listener-that-echoes": ('b"lifelines 3 listener"', 'b"lifelines 3 host"'),
            "links-let-connections-wait-forever": ("if guest.due <= time.monotonic():", "if not guest.due:"),
        },
    ),
)

# Kueue's decisions, simulated by infra/review/admission.
_DECISIONS = "tests/infra/review/admission/test_decisions.py"
_REHEARSALS = "tests/infra/review/admission/test_rehearsal.py"
ADMISSION = (
    *_of(
        "infra/review/admission/scheduler.py",
        _DECISIONS,
        {
            "admission-reserves-above-the-borrowing-limit": (
                "chips if limit is None else min(chips, own + limit)",
                "chips",
            ),
            "admission-reserves-nothing-without-room": (
                "self._claim(claims, queue, self._reserved(assignment))",
                "pass",
            ),
        },
    ),
    *_of(
        "infra/review/admission/situation.py",
        _REHEARSALS,
        {
            "admission-idle-chips-kept-back": (
                "max(quota.kept, self._usage[queue, flavor])",
                "self._usage[queue, flavor]",
            )
        },
    ),
    *_of(
        "infra/review/admission/preemption.py",
        f"{_DECISIONS} {_REHEARSALS}",
        {
            "admission-takes-from-equal-shares": (
                "ledger.share(contest.workload.queue) < ledger.share(queue)",
                "ledger.share(contest.workload.queue) <= ledger.share(queue)",
            ),
            "admission-preempts-what-came-in-the-same-second": (
                "mine.queued_at < other.queued_at",
                "mine.queued_at <= other.queued_at",
            ),
            "admission-spares-in-another-order": ("in reversed(targets[:-1])", "in targets[:-1]"),
        },
    ),
)

ALL = (*PROGRAM, *ADMISSION, *POLICY, *COMMANDS, *WORKLOADS)


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Let tests use as much CPU time as they like: one that is slow has caught nothing."""
    for item in items:
        item.add_marker("complete")


def main(names: Sequence[str]) -> int:
    """Run the mutations of these names, or all; return 1 if one survives that a test must catch."""
    chosen = [mutation for mutation in ALL if not names or mutation.name in names]
    if unknown := {*names} - {mutation.name for mutation in chosen}:
        sys.exit(f"error: no mutation is called {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        root = Path(folder)
        copy_checkout(root)
        if Path(".venv").exists():
            (root / ".venv").symlink_to(Path(".venv").resolve())
        for mutation in chosen:
            _mutated(root, mutation)
        # A test that fails anyway would catch every mutation.
        sound = _run_tests(root, dict.fromkeys(test for mutation in chosen for test in mutation.tests.split()))
        if sound.returncode:
            sys.exit(f"error: the tests do not pass without a mutation:\n{sound.stdout[-2000:]}{sound.stderr[-2000:]}")
        survived = [mutation.name for mutation in chosen if not _is_caught(root, mutation)]
    print(f"{len(chosen)} mutations: {len(chosen) - len(survived)} caught, {len(survived)} survived")
    if survived:
        print(f"no test catches {', '.join(survived)}")
    return int(bool(survived))


def _mutated(root: Path, mutation: Mutation) -> str:
    source = (root / mutation.file).read_text()
    if (count := source.count(mutation.find)) != 1:
        sys.exit(f"error: {mutation.name}: expected {mutation.find!r} once in {mutation.file}, found it {count} times")
    return source.replace(mutation.find, mutation.replace)


def _is_caught(root: Path, mutation: Mutation) -> bool:
    path = root / mutation.file
    source, began = path.read_text(), monotonic()
    _write(path, _mutated(root, mutation))
    done = _run_tests(root, mutation.tests.split())
    _write(path, source)
    caught = done.returncode == 1
    if not caught and done.returncode:
        sys.exit(f"error: {mutation.name}: the tests did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    verdict, first_failed = ("caught", _failed(done.stdout)) if caught else ("survived", "")
    print(f"{verdict:8} {monotonic() - began:5.1f} s  {mutation.name}  {first_failed}".rstrip(), flush=True)
    return caught


def _failed(output: str) -> str:
    """Name of the first test that failed."""
    lines = (line.removeprefix("FAILED ") for line in output.splitlines() if line.startswith("FAILED "))
    return next((line.split(" - ")[0].partition("::")[2] for line in lines), "")


def _write(path: Path, source: str) -> None:
    path.write_text(source)
    # Python tells bytecode to be stale by size and time of the source, which two versions may share.
    Path(cache_from_source(str(path))).unlink(missing_ok=True)


def _run_tests(root: Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "tests.mutations", *tests)
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
