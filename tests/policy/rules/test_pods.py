import pytest

from infra.stack.pods import CONFINED_CONTAINER
from tests.policy.example import declared, says


@pytest.mark.parametrize(
    ("rule", "setting", "value"),
    [("no-root", "runAsNonRoot", True), ("confined-pods", "seccompProfile", {"type": "RuntimeDefault"})],
)
def test_a_setting_of_a_container_counts_for_it_and_that_of_its_pod_for_the_others(
    rule: str, setting: str, value: object
) -> None:
    context = {"securityContext": {setting: value}}
    for pod, first, second, refused in (
        ({}, {}, {}, 2),
        ({}, context, {}, 1),
        (context, {}, {}, 0),
        ({}, context, context, 0),
    ):
        containers = [
            {"name": name, "securityContext": {**CONFINED_CONTAINER, **own.get("securityContext", {})}}
            for name, own in (("first", first), ("second", second))
        ]
        spec = {**pod, "containers": containers}
        assert len(says(rule, declared("kubernetes:core/v1:Pod", "pod", {"spec": spec}))) == refused
