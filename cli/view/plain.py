"""What a log gets instead of a live screen: the lines that a change of the snapshot is worth."""

from cli.observed.training import Training
from cli.view.render import duration, restart_lines, waiting_lines
from cli.view.snapshot import Phase, Snapshot, Span

_REPORTS_PER_RUN = 20
_ENGINE_PHASES = (Phase.PLAN, Phase.INFRASTRUCTURE, Phase.DESTROY)
_RESOURCES_PER_REPORT = 5


def lines(before: Snapshot, after: Snapshot) -> list[str]:
    """ASCII lines that tell how `after` differs from `before`."""
    told = [
        line
        for phase in after.phases
        if (span := after.spans.get(phase))
        and (phase not in _ENGINE_PHASES or span.ended is not None or _counted(before, after))
        and (line := _phase(phase, before.spans.get(phase), span))
    ]
    told += restart_lines(after)[before.restarts :]
    known = waiting_lines(before.pods.values())
    told += [f"pods: {line}" for line in waiting_lines(after.pods.values()) if line not in known]
    return [*told, *_training(before.training, after.training)]


def _counted(before: Snapshot, after: Snapshot) -> bool:
    """Whether the engine has finished enough resources for another line, or tells something else."""
    if after.resources == before.resources:
        return True
    count, earlier = len(after.resources.done), len(before.resources.done)
    return count // _RESOURCES_PER_REPORT != earlier // _RESOURCES_PER_REPORT


def _phase(phase: Phase, before: Span | None, after: Span) -> str | None:
    told = (
        [after.detail.replace("\n", ": ")] if after.detail and (before is None or before.detail != after.detail) else []
    )
    if after.ended is not None and (before is None or before.ended is None):
        told.append(f"{'failed' if after.failed else 'done'} in {duration(after.seconds(after.ended))}")
    elif before is None:
        told.append("begins")
    return f"{phase}: {', '.join(told)}" if told else None


def _training(before: Training, after: Training) -> list[str]:
    told: list[str] = []
    if after.run_id and (after.run, after.run_id) != (before.run, before.run_id):
        told.append(f"training: run {after.run_id} {after.run}")
    if after.loss is not None and _reports(after) != _reports(before):
        pace = f"{after.tokens_per_second:.0f} tokens/s, {duration(after.seconds_left())} left"
        told.append(f"training: step {after.step} of {after.steps}, loss {after.loss:.4f}, {pace}")
    if after.held_out_loss is not None and after.held_out_loss != before.held_out_loss:
        told.append(f"training: held-out loss {after.held_out_loss:.4f}")
    if after.checkpoint_step is not None and after.checkpoint_step != before.checkpoint_step:
        told.append(f"training: checkpoint of step {after.checkpoint_step} saved")
    return told


def _reports(training: Training) -> int:
    return training.step * _REPORTS_PER_RUN // training.steps if training.steps else 0
