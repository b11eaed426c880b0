"""Keeps the records of a program of your own, so that commands and alerts treat it as the trainer of this repository.

    with Attempt(steps=1000) as attempt:
        state, step = restore(attempt.folder / "checkpoints")
        attempt.resumed(step)
        while step < 1000:
            state, loss = train(state)
            step += 1
            attempt.step(step, loss=loss, tokens=65536)
            stopping = attempt.stopping(step)
            if stopping or step % 100 == 0:
                save(state, step)
                attempt.saved(step)
            if stopping:
                raise Preempted(f"SIGTERM: stopped after step {step}, which is saved")

Every host of the job runs it. Host 0 of slice 0, the leader, writes the ledger and the steps of the run. Every host
serves metrics and records its own failure. An exception ends the process with an exit code that the JobSet knows:
that of a `Stopped`, or of what the exception means.
"""

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, Self

from etils import epath

from multislice_run.attempt_facts import AttemptFacts
from multislice_run.ending import LINGER_SECONDS, Ending, Failure
from multislice_run.exit_codes import ExitCode
from multislice_run.failures import HostsHang, Stopped, exit_code
from multislice_run.failures import Preempted as Preempted
from multislice_run.live_metrics import LiveMetrics, look_back, serve
from multislice_run.pod import (
    HEARTBEAT_VARIABLE,
    IMAGE_VARIABLE,
    JOB_FOLDER_VARIABLE,
    RUN_ID_VARIABLE,
    START_VARIABLE,
    HostPosition,
)
from multislice_run.records import numbered
from multislice_run.records.events import EventName
from multislice_run.records.ledger import Ledger, StepFile, next_start, write_current, write_whole
from multislice_run.records.lines import StepLine
from multislice_run.sigterm import NOTHING_TO_SAVE, jax_client, jax_heard_sigterm, on_sigterm
from multislice_run.standstill import HANG_MINUTES, Standstill, stacks

_BY_HAND = {RUN_ID_VARIABLE: "by-hand", START_VARIABLE: "0"}
"""Variables of a program that was started by hand."""

_WATCH_SECONDS = 1.0


class NoJobFolder(Stopped):
    """The environment does not say where records belong."""

    code = ExitCode.INVALID_SPEC


class Attempt:
    """One attempt of the program on this host. It is a context manager that ends the process for every exception."""

    def __init__(
        self,
        steps: int,
        *,
        run: str = "main",
        save_every_minutes: float | None = None,
        hang_minutes: float | None = HANG_MINUTES,
        environment: Mapping[str, str] = os.environ,
    ):
        """Read the position of this host, but write nothing yet.

        Args:
            steps: number of the run's last step.
            run: name of the run that this attempt continues. Another name begins a new run in the same job.
            save_every_minutes: longest time between two saves, for the alert on saves that are too old. Default: no
                such alert.
            hang_minutes: time in minutes after which the job ends as a hang if the main threads of all hosts have run
                no Python in it, because each waits for others. It must be longer than any call into a compiled program
                takes. `None`: never. A host that is alone never ends so.
            environment: variables of the pod.

        Raises:
            NoJobFolder: JOB_FOLDER is not set.
        """
        self.job_folder = _job_folder(environment)
        position = self._position = HostPosition.of(environment)
        self.leads = position.process == 0
        """Whether this host writes the ledger, and prints for all hosts."""
        self.folder = self.job_folder / "runs" / run
        """Folder of the run, also for its checkpoints. It is the same on all hosts and in all attempts."""
        self.hosts = len(position.hosts) * position.slice_count
        """Number of hosts of the job."""
        self.steps, self.last_step = steps, 0
        """Step that was restored or recorded last."""
        self._start = AttemptFacts.of({**_BY_HAND, **environment}, time.time(), position.slice_count)
        self._ending = Ending(self.job_folder, self._start, position.host)
        self._live = LiveMetrics(self._start, leads=self.leads)
        self._live.set_schedule(steps, save_every_minutes and 60 * save_every_minutes, position.slice_count)
        self._environment = environment
        self._heartbeat, self._sigterm = environment.get(HEARTBEAT_VARIABLE), threading.Event()
        self._asks = 0
        """Number of queries of `stopping` in this attempt."""
        self._standstill: Standstill | None = None
        if hang_minutes is not None and not position.alone:
            self._standstill = Standstill(self.job_folder, self._start, position, hang_minutes)
        self._files: tuple[Ledger, StepFile] | None = None
        self._closing, self._done = threading.Lock(), threading.Event()
        self._resumed = self._stepped = False
        """Whether a step has ended. Until then, the attempt has nothing new to save."""
        self._skipped, self._since = 0, time.monotonic()

    def __enter__(self) -> Self:
        # JAX replaces this handler when it joins several hosts. JAX is then asked.
        on_sigterm(self._note_sigterm)
        serve(self._live, self._environment)
        look_back(self._live, self.job_folder, self._start)
        if self.leads:
            self._open()
        self._record(EventName.START, **self._start.facts(self._position.host, self._position.slice_count))
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._done.set()
        if error is not None and exit_code(error) != ExitCode.DONE:
            self._fail(error)
        self._close(None)
        if self._standstill:
            self._standstill.end()

    def resumed(self, step: int) -> None:
        """Record that the program has restored its state after `step`, or begins a new run if `step` is 0.

        Call it once, before the first step. In a program that never calls it, all time until the end of its first step
        counts as compilation.
        """
        self._resumed = True
        self.last_step = step
        if step:
            self._record(EventName.RESTORE, step=step)
        outcome = "new" if not step else "resumed" if step < self.steps else "already complete"
        self._record(EventName.RUN_STARTED, run=self.folder.name, outcome=outcome, step=step, steps=self.steps)

    def compiled(self) -> None:
        """Record that the time since the last record was compilation. It is optional: without it, compilation counts
        as part of the first step."""
        self._record(EventName.COMPILE)

    def step(
        self,
        number: int,
        *,
        loss: float | None = None,
        tokens: int | None = None,
        waited_seconds: float = 0.0,
        skipped: bool = False,
    ) -> None:
        """Record that a step has ended, whose results the host has read. Its time is that since the last record.

        Args:
            number: number of steps of the run that are done.
            loss: loss of the step. A loss that is not finite is recorded as such.
            tokens: tokens of the step on all hosts.
            waited_seconds: part of the step's time in which the devices waited for this host, such as for data.
            skipped: whether the step changed nothing, for example because its loss was not finite.
        """
        if not self._resumed:
            self.compiled()
            self.resumed(number - 1)
        self.last_step = number
        self._stepped = True
        seconds = self._cut()
        self._skipped += skipped
        line = StepLine(
            step=number,
            time=round(time.time(), 3),
            loss=None if loss is None else float(loss),
            skipped=skipped,
            skipped_steps=self._skipped,
            step_seconds=seconds,
            host_seconds=min(waited_seconds, seconds),
            tokens_per_second=tokens / seconds if tokens and seconds else None,
        )
        self._live.record_step(line)
        if self._files:
            self._files[1].add(line)

    def saved(self, step: int) -> None:
        """Record that the checkpoint of `step` is complete. The time since the last record counts as saving."""
        self._record(EventName.SAVE, step=step)
        self._record(EventName.CHECKPOINT_SAVED, step=step, folder=str(self.folder))

    def evaluated(self, step: int, loss: float) -> None:
        """Record the loss on held-out data. The time since the last record counts as evaluation."""
        self._record(EventName.EVALUATION, step=step, loss=float(loss))

    def stopping(self, step: int | None = None) -> bool:
        """Return whether the job received SIGTERM: save, then raise `Preempted`. Ask after every step.

        In a program that joined several hosts by `jax.distributed.initialize`, one of them is enough, and all get the
        same answer after the same step. Other programs have to agree on it, as hosts receive it at different steps.
        Before the first step of the attempt, SIGTERM ends the process at once, because there is nothing new to save.
        `step` is not needed. Programs may pass it as before.
        """
        if jax_client() is not None:
            from jax.experimental import multihost_utils

            # JAX agrees on the number of a query after the last one, so a resumed run must not begin at its step.
            self._asks += 1
            return multihost_utils.reached_preemption_sync_point(self._asks)
        return self._sigterm.is_set()

    def _note_sigterm(self) -> None:
        self._sigterm.set()
        if not self._stepped and not self._done.is_set():
            self._fail(Preempted(NOTHING_TO_SAVE))

    def _watch(self) -> None:
        while not self._done.wait(_WATCH_SECONDS):
            if not self._stepped and jax_heard_sigterm():
                self._fail(Preempted(NOTHING_TO_SAVE))
            if self._standstill and (cause := self._standstill.look()):
                self._fail(HostsHang(cause))

    def _fail(self, error: BaseException) -> NoReturn:
        """Close the records and end the process. Only the first thread that calls it counts."""
        self._close(error)
        failure = Failure.of(error, self._position.host)
        if isinstance(error, HostsHang):
            self._ending.fail(replace(failure, details=stacks().splitlines()), self._standstill)
        if isinstance(error, Stopped) and error.agreed:
            if self._standstill:
                self._standstill.end()
            if self.leads and not self._position.alone:
                # The other hosts lose their connection when the leader ends, so that it ends last.
                time.sleep(LINGER_SECONDS)
        self._ending.fail(failure)

    def _close(self, error: BaseException | None) -> None:
        if self._closing.acquire(blocking=False):
            for file in reversed(self._files or ()):
                file.__exit__(error and type(error), error, None)

    def _open(self) -> None:
        number = next_start(self.folder / "ledger")
        self.folder.mkdir(parents=True, exist_ok=True)
        facts = {"spec": {"name": self.job_folder.name}, "image": self._environment.get(IMAGE_VARIABLE)}
        write_whole(self.folder / "manifest.json", json.dumps(numbered(facts), indent=2) + "\n")
        write_current(self.job_folder, self.folder.name)
        ledger = Ledger(self.folder / "ledger" / f"{number}-0.jsonl").__enter__()
        self._files = ledger, StepFile(self.folder / "steps", number).__enter__()

    def _record(self, event: EventName, **facts: object) -> None:
        self._cut()
        self._live.record_event(event, facts)
        if self._files:
            self._files[0].record(event, **facts)

    def _cut(self) -> float:
        """Return the seconds since the last record, and give the sign of life."""
        if self._heartbeat:
            Path(self._heartbeat).touch()
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        return seconds


def _job_folder(environment: Mapping[str, str]) -> epath.Path:
    if JOB_FOLDER_VARIABLE not in environment:
        raise NoJobFolder(
            f"{JOB_FOLDER_VARIABLE} must be set to a folder for the program's files, as in pods of a job; to run"
            f" it by hand, write {JOB_FOLDER_VARIABLE}=/tmp/job before the command"
        )
    return epath.Path(environment[JOB_FOLDER_VARIABLE])
