"""Examples of every rule, by its id."""

from tests.policy.example import Example
from tests.policy.examples import access, chips, cloud, cluster, pods

EXAMPLES: dict[str, Example] = {
    **cluster.EXAMPLES,
    **access.EXAMPLES,
    **pods.EXAMPLES,
    **cloud.EXAMPLES,
    **chips.EXAMPLES,
}
