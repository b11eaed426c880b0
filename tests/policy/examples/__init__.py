"""Examples of every rule, by its id."""

from tests.policy.example import Example
from tests.policy.examples import cost, queue, reliability, security, tpu_shape

EXAMPLES: dict[str, Example] = {
    **security.EXAMPLES,
    **cost.EXAMPLES,
    **reliability.EXAMPLES,
    **tpu_shape.EXAMPLES,
    **queue.EXAMPLES,
}
