"""`multislice up` deploys a stack in the sandbox on this machine and follows its job until it has ended.

The exit status is 0 if the job completes or is paused, or the stack has none, 1 if the job fails or cannot start, 130
after Ctrl-C.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from cli import stack_file
from cli.answer import INTERRUPTED, Halt
from cli.deployed import from_outputs
from cli.observed.causes import first_cause
from cli.observed.snapshot import JobStatus
from cli.phases import Display, operate, prepare_programs, recover, start_control_plane
from cli.progress import UP_PHASES, Phase, Progress, about, align_rows, announcement, times
from cli.render import WIDTH
from cli.sandbox_folder import StackOfSandbox, lock_sandbox
from cli.status import Watch, restart_lines
from infra.cluster.job_pods import Pod
from infra.cluster.job_state import DELETED, Kind, Outcome, State
from infra.cluster.stacks import NO_RENEWAL, Renewal
from infra.stack.command_lines import replacing
from infra.stack.names import QUEUE_LABEL, job_resource
from sandbox import builds, certificates, daemon
from sandbox.programs import Program, Programs
from sandbox.site import Site, create, pod_folder
from sandbox.stacks import SandboxStacks

_FIRST_PHASES = (Phase.PROGRAMS, Phase.PLAN, Phase.CONTROL_PLANE, Phase.INFRASTRUCTURE)
"""Order of the phases if programs must be built: the engine plans while the others are built."""
_EXPECTED_SECONDS = {Phase.CONTROL_PLANE: 10.0, Phase.PLAN: 10.0, Phase.INFRASTRUCTURE: 30.0}
"""Usual time of each phase on two cores; that of the programs depends on what is missing."""
_FIRST_STEP_SECONDS = 20.0
"""Usual time from the end of the phases to the first training step."""
_LOG_LINES_SHOWN = 30

_Rows = list[tuple[str, str]]


def up(settings: Path, root: Path, console: Console, renewal: Renewal = NO_RENEWAL) -> int:
    """Deploy the stack of the file `settings` and follow its job, if it has one. Return the exit status."""
    jobs = stack_file.read(settings).jobs
    if root.is_dir() and any(root.iterdir()) and not (root / "site.json").exists():
        # `down --delete-checkpoints` removes the whole folder.
        raise Halt(f"--sandbox must be a sandbox, or a new or empty folder; {root} has other files: choose another")
    site = create(root)
    stack = stack_file.stack_name(settings)
    missing = builds.missing()
    about = StackOfSandbox(stack, root)
    display = Display(console, _beginning(stack, missing), about)
    if missing:
        _review(settings, missing, console)
    _announce(display.progress, console, trains=any(not job.paused for job in jobs.values()))
    with display.shown(), lock_sandbox(site, "up"):
        outputs, found = _deploy(display, site, settings, renewal)
    if not console.is_terminal:
        # On a terminal, the last live screen stays visible and has the times.
        console.print(times(display.progress))
    paused = [name for name, job in jobs.items() if job.paused]
    commands = SandboxCommands(about, site, found.path("kubectl"))
    if outputs["jobs"] and outputs["job"]["name"] not in paused:
        return _follow(outputs, commands, console)
    if paused:
        told = Text(f"the stack is up; paused: {', '.join(paused)}", "bold green")
        tries = [("resume a job", f"set its `paused` to false in the stack file, then {about.up()}")]
        console.print(_join(told, _next(tries)), soft_wrap=True)
    else:
        console.print(without_jobs(commands, outputs["queues"]), soft_wrap=True)
    return 0


def _beginning(stack: str, missing: list[Program]) -> Progress:
    title = f"tpu-multislice · {stack}"
    if not missing:
        return Progress(title, UP_PHASES, expected=_EXPECTED_SECONDS)
    expected = {Phase.PROGRAMS: builds.expected_seconds(missing), **_EXPECTED_SECONDS}
    return Progress(title, _FIRST_PHASES, expected=expected)


def _review(settings: Path, missing: list[Program], console: Console) -> None:
    """Print the review of the stack and what must be built, which gives time to read it."""
    # The model of the review takes half a second to import.
    from cli.review import review_of
    from infra.review.answers import answers
    from infra.review.table import renderable

    console.print(Text("Review of the stack as it would be on Google Cloud:\n", "bold"))
    console.print(renderable(answers(review_of(settings))), width=WIDTH)
    names = ", ".join(program.name for program in missing)
    console.print(f"These programs are built from source, once and besides downloads: {names}.\n", highlight=False)


def _announce(progress: Progress, console: Console, *, trains: bool) -> None:
    if not console.is_terminal:
        console.print(announcement(progress), soft_wrap=True)
    if trains:
        total = about(sum(progress.expected.values()) + _FIRST_STEP_SECONDS)
        console.print(f"The first training step is {total} away.", highlight=False)


def _deploy(display: Display, site: Site, settings: Path, renewal: Renewal) -> tuple[Mapping[str, Any], Programs]:
    with prepare_programs(display) as preparation:
        engine_programs = preparation.engine()
        # The Automation API takes a second to import. Errors in the settings are reported before.
        from sandbox.engine import Engine

        engine = Engine(site, engine_programs, settings)
        # A plan for an empty stack needs no cluster, so it is made while programs are built.
        planned = Phase.PROGRAMS in display.progress.expected and not engine.destroyable()
        if planned:
            certificates.ensure(site)
            operate(display, Phase.PLAN, engine.preview, f"Fix the cause and run `{display.about.up()}` again")
        found = preparation.all()
    start_control_plane(display, site)
    recover(display, engine)
    advice = (
        f"The sandbox is still running. Fix the cause and run `{display.about.up()}` again, or remove it with"
        f" `{display.about.down()}`"
    )
    if not planned:
        preview = engine.preview_after_refresh if renewal.refresh else engine.preview
        operate(display, Phase.PLAN, preview, advice)
    deploy = partial(engine.up, refresh=renewal.refresh, replace=renewal.replace)
    return operate(display, Phase.INFRASTRUCTURE, deploy, advice), found


@dataclass(frozen=True)
class SandboxCommands:
    """The sandbox, for the commands and folders in the closing lines. They never wrap, because users copy them."""

    about: StackOfSandbox
    site: Site
    kubectl: Path

    @property
    def kill_command(self) -> str:
        """Command that kills the process of one host, as a crash would."""
        return f"kill -9 $(cat {_short(self.site.pods)}/*-slice-1-0-*/pid)"

    def kubectl_command(self, namespace: str, words: str) -> str:
        return f"KUBECONFIG={_short(self.site.kubeconfig)} {_short(self.kubectl)} -n {namespace} {words}"

    def log_folder(self, pod: Pod) -> Path:
        return self.site.pod_logs(pod_folder(pod.namespace, pod.name, pod.uid))


def _follow(outputs: Mapping[str, Any], commands: SandboxCommands, console: Console) -> int:
    deployed = from_outputs(commands.about.stack, outputs, SandboxStacks(commands.about.root))
    name = next(job for job in deployed.jobs if job.name == outputs["job"]["name"]).full_name
    console.print()
    job = follow(Watch(deployed, name, console, hint=commands.kill_command), commands)
    complete = job.state is State.COMPLETED
    folder = f"{outputs['checkpoint_bucket']}/{job.ref.name}"
    console.print(completed(job, folder, commands) if complete else failed(job, commands), soft_wrap=True)
    return 0 if complete else 1


def follow(watch: Watch, commands: SandboxCommands) -> JobStatus:
    """Show the job until it has ended. Raise Halt after Ctrl-C, or if the sandbox stops."""
    about = commands.about

    def wait(seconds: float) -> None:
        time.sleep(seconds)
        if daemon.running(commands.site) is None:
            raise Halt(
                f"the sandbox stopped while the job was running; {commands.site.logs / 'daemon.log'} says why.\n"
                f"Run `{about.up()}` again: the job resumes from its last checkpoint"
            )

    watch.wait = wait
    try:
        return watch.follow()[1]
    except KeyboardInterrupt:
        raise Halt(
            "stopped watching; the job continues.\n"
            f"Watch it again with `{about.up()}`, or stop everything with `{about.down('--stop-jobs')}`",
            INTERRUPTED,
        ) from None


def completed(job: JobStatus, folder: str, commands: SandboxCommands) -> Text:
    """Return the closing lines about a completed job. `folder` is that of its files, `gs://BUCKET/JOB`."""
    results = [*_results(job), ("restarts", str(job.restarts))]
    if kept := _kept(job, folder):
        local = commands.site.buckets / kept[1].removeprefix("gs://")
        results += [kept, ("on this machine", _short(local))]
    tries = [
        ("look at the cluster", commands.kubectl_command(job.ref.namespace, "get jobset,pods")),
        *_again(job, commands),
    ]
    return _join(Text(f"{job.ref.name} is complete", "bold green"), align_rows(results), _next(tries))


def _results(job: JobStatus) -> Iterator[tuple[str, str]]:
    training = job.training
    if training.step is None:
        return
    if not training.ended:
        yield "figures", f"unknown: the run has no record of its end; its last record is of step {training.step}"
    elif training.losses:
        yield "loss", f"{training.losses[-1][1]:.4f}"
        if training.held_out_loss is not None:
            yield "held-out loss", f"{training.held_out_loss:.4f}"
    yield "run", f"{training.run_id}, {training.run}"


def _kept(job: JobStatus, folder: str) -> tuple[str, str] | None:
    """Return what a job has left in the bucket. None: that is unknown, because another program than a trainer ran."""
    if not job.training.run_id:
        return None
    run = f"{folder}/runs/{job.training.run_id}"
    # Only the trainer of this repository has a specification, and only it saves in this folder.
    return ("checkpoints", f"{run}/checkpoints") if job.existing_run else ("files", run)


def _again(job: JobStatus, commands: SandboxCommands) -> Iterator[tuple[str, str]]:
    again = commands.about.up(*replacing(job_resource(job.ref.name)))
    if not job.existing_run:
        yield "read its output", commands.about.logs(job.ref.name)
    if job.existing_run == "resume":
        yield "train from scratch", f"set `existing_run: new` in the stack file, then {commands.about.up()}"
    elif job.kind is not Kind.FUNCTION:
        yield "train from scratch" if job.existing_run else "run it again", again
    yield f"remove all but {'the checkpoints' if job.existing_run else 'its files'}", commands.about.down()


def failed(job: JobStatus, commands: SandboxCommands) -> Text:
    """Return the closing lines about a failed job: the reason, the host that failed and the end of its log."""
    said = job.condition("Failed")
    outcome = Outcome("Failed", said.reason, said.message) if said else DELETED
    parts = [Text.assemble((f"{job.ref.name} failed: {outcome.reason}", "bold red"), f"\n{outcome.message}")]
    used_up = [f"the restarts are used up: {job.max_restarts} may count"] if job.used_up else []
    if lines := [*restart_lines(job), *used_up]:
        parts.append(Text("\n".join(lines)))
    if cause := first_cause(job, job.restarts):
        pods = [pod for pod in job.pods if (pod.attempt, pod.host) == (job.restarts, cause.host)]
        ended = cause.words(job.kind)
        if pods:
            folder = commands.log_folder(pods[0])
            parts.append(Text(f"{ended}; the end of its log in {_short(folder)}:"))
            logs = [log.read_text(errors="replace").splitlines() for log in sorted(folder.glob("*.log"))]
            last = [line for log in logs for line in log][-_LOG_LINES_SHOWN:] or ["(no log)"]
            parts.append(Text("\n".join(f"  {line}" for line in last), "dim"))
        else:
            parts.append(Text(f"{ended}; {'; '.join(cause.evidence)}"))
    tries = [
        ("look at the cluster", commands.kubectl_command(job.ref.namespace, "get jobset,pods")),
        ("try again", commands.about.up(*replacing(job_resource(job.ref.name)))),
    ]
    return _join(*parts, _next(tries))


def without_jobs(commands: SandboxCommands, queues: Mapping[str, str]) -> Text:
    """Return the closing lines about a stack without jobs. `queues` has the namespace of each queue."""
    submit = [
        (f"submit to {queue}", commands.kubectl_command(namespace, "apply -f FILE"))
        for queue, namespace in queues.items()
    ]
    return _join(
        Text("the stack is up and has no jobs", "bold green"),
        Text(f"FILE is a JobSet whose label {QUEUE_LABEL} is the name of the queue."),
        _next([*submit, ("remove the stack", commands.about.down())]),
    )


def _next(tries: _Rows) -> Text:
    return Text.assemble(("next\n", "bold"), align_rows(tries))


def _join(*blocks: Text) -> Text:
    return Text("\n\n").join([Text(), *blocks])


def _short(path: Path) -> str:
    """Return the path as a user would type it: relative in the current folder, with ~ in the home folder."""
    for base, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            return f"{prefix}{path.relative_to(base)}"
    return str(path)
