"""Every rule of the pack."""

from policy.rule import Rule
from policy.rules import cost, queue, reliability, security, tpu_shape

ALL_RULES: tuple[Rule, ...] = (
    *security.RULES,
    *cost.RULES,
    *reliability.RULES,
    *tpu_shape.RULES,
    *queue.RULES,
)
