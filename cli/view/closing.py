"""What stays on the screen at the end: the result or the failure, where things lie, what to try next.

Lines are never wrapped or cut: they hold paths and commands to copy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from cli.observed.pod import Pod
from cli.view.render import duration, exit_words, restart_lines
from cli.view.snapshot import Outcome, Snapshot
from sandbox.site import Site, pod_folder

_LOG_LINES_TOLD = 30

_Rows = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Place:
    """Where the job runs, for the commands that the screen proposes."""

    site: Site
    kubectl: Path
    namespace: str
    storage: str
    """Where the job keeps its runs, `gs://BUCKET/JOB`."""

    def kill_command(self) -> str:
        """Ends the process of one host as a crash would."""
        return f"kill -9 $(cat {_short(self.site.pods)}/*-slice-1-0-*/pid)"

    def kubectl_command(self) -> str:
        """Lists the job's objects."""
        return _kubectl(self.site, self.kubectl, self.namespace, "get jobset,pods")

    def folder(self, address: str) -> Path:
        """Where the local object storage keeps what `gs://...` names."""
        return self.site.buckets / address.removeprefix("gs://")

    def log_folder(self, pod: Pod) -> Path:
        """Where the node agent keeps the pod's logs."""
        return self.site.pod_logs(pod_folder(pod.namespace, pod.name, pod.uid))


def completed(snapshot: Snapshot, place: Place) -> Text:
    """The job is done: losses, checkpoint, and what to try."""
    training = snapshot.training
    results = [("restarts", str(snapshot.restarts))]
    if training.run:
        checkpoints = f"{place.storage}/runs/{training.run_id}/checkpoints"
        results = [
            ("run", f"{training.run_id}, {training.run}"),
            *results,
            ("checkpoints", checkpoints),
            ("on this machine", _short(place.folder(checkpoints))),
        ]
    if training.held_out_loss is not None:
        results.insert(0, ("held-out loss", f"{training.held_out_loss:.4f}"))
    if training.losses:
        results.insert(0, ("loss", f"{training.losses[-1][1]:.4f}"))
    tries = [
        ("look at the cluster", place.kubectl_command()),
        ("train anew", "set `existing_run: anew` in the stack file, then make up"),
        ("kill a host while it trains", place.kill_command()),
        ("remove all but the checkpoints", "make down"),
    ]
    return _join(Text(f"{snapshot.job} is complete", "bold green"), _rows(results), _next(tries))


def failed(snapshot: Snapshot, place: Place) -> Text:
    """The job has failed: the reason, the host that failed and the end of its log."""
    outcome = snapshot.outcome or Outcome("Failed", "Unknown", "the JobSet does not say why")
    parts = [Text.assemble((f"{snapshot.job} failed: {outcome.reason}", "bold red"), f"\n{outcome.message}")]
    if snapshot.restarts:
        parts.append(Text("\n".join(restart_lines(snapshot))))
    last = snapshot.failed[-1:]
    if cause := snapshot.first_cause(last[0].attempt) if last else None:
        pods = [pod for pod in snapshot.failed if (pod.attempt, pod.host) == (last[0].attempt, cause.host)]
        ended = f"host {cause.host} exited {exit_words(cause.code)}"
        if pods:
            folder = place.log_folder(pods[0])
            parts.append(Text(f"{ended}; its log ends, in {_short(folder)}:"))
            parts.append(Text("\n".join(f"  {line}" for line in _last_lines(folder)), "dim"))
        else:
            parts.append(Text(f"{ended}; {'; '.join(cause.evidence)}"))
    tries = [
        ("look at the cluster", place.kubectl_command()),
        ("try again", "make down, then make up: the job goes on from its last checkpoint"),
    ]
    return _join(*parts, _next(tries))


def without_jobs(site: Site, kubectl: Path, queues: Mapping[str, str]) -> Text:
    """The stack is up and has no job of its own; `queues` are the namespaces of its queues, by name."""
    submit = [
        (f"submit to {queue}", _kubectl(site, kubectl, namespace, "apply -f FILE"))
        for queue, namespace in queues.items()
    ]
    return _join(
        Text("the stack is up and has no jobs", "bold green"),
        Text("FILE is a JobSet with the label kueue.x-k8s.io/queue-name, the name of the queue."),
        _next([*submit, ("remove the stack", "make down")]),
    )


def paused(jobs: Sequence[str]) -> Text:
    """The stack is up, and the job that would be followed is paused."""
    tries = [("go on with a job", "set its `paused` to false in the stack file, then make up")]
    return _join(Text(f"the stack is up; paused: {', '.join(jobs)}", "bold green"), _next(tries))


def times(snapshot: Snapshot) -> Text:
    """How long each phase took."""
    spans = [(phase, snapshot.spans[phase]) for phase in snapshot.phases if phase in snapshot.spans]
    return _rows([(phase, duration(span.seconds(span.ended or span.started))) for phase, span in spans])


def _kubectl(site: Site, kubectl: Path, namespace: str, words: str) -> str:
    return f"KUBECONFIG={_short(site.kubeconfig)} {_short(kubectl)} -n {namespace} {words}"


def _last_lines(folder: Path) -> list[str]:
    lines = [line for log in sorted(folder.glob("*.log")) for line in log.read_text(errors="replace").splitlines()]
    return lines[-_LOG_LINES_TOLD:] or ["(there is no log)"]


def _next(tries: _Rows) -> Text:
    return Text.assemble(("next\n", "bold"), _rows(tries))


def _rows(rows: _Rows) -> Text:
    width = max(len(name) for name, _ in rows)
    return Text("\n").join(Text.assemble((f"{name:<{width}}  ", "dim"), value) for name, value in rows)


def _join(*blocks: Text) -> Text:
    return Text("\n\n").join([Text(), *blocks])


def _short(path: Path) -> str:
    """The path as one would type it: relative below the current folder, with ~ below home."""
    for base, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            return f"{prefix}{path.relative_to(base)}"
    return str(path)
