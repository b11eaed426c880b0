"""How far a job has trained."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Training:
    """What the leader told so far, in its log or its files."""

    run: str = ""
    """`new`, `resumed at step 75`, `already complete`."""
    run_id: str = ""
    step: int = 0
    steps: int = 0
    loss: float | None = None
    tokens_per_second: float = 0.0
    step_ms: float = 0.0
    held_out_loss: float | None = None
    checkpoint_step: int | None = None
    losses: tuple[tuple[int, float], ...] = ()
    """Step and loss, ascending."""

    def seconds_left(self) -> float:
        """Time that the remaining steps take at the pace of the last one."""
        return (self.steps - self.step) * self.step_ms / 1000
