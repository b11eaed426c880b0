"""What the rules of this group are shown."""

from tests.policy.example import Example

EXAMPLES: dict[str, Example] = {}
