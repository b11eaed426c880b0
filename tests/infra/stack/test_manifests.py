"""Quantities, requests of pods, label selectors and cohorts."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from infra.stack.manifests import amount, quantity, related, requests, selects


@given(st.integers(0, 10**9).map(lambda thousandths: thousandths / 1000))
def test_a_quantity_is_the_amount_with_the_largest_suffix_that_leaves_it_whole(chips: float) -> None:
    text = quantity(chips)
    assert round(float(parse_quantity(text)), 3) == chips
    assert round(amount(text), 3) == chips
    assert not text.removesuffix("m").removesuffix("k").endswith("000")


@given(
    st.decimals(0, 10**6, places=3),
    st.sampled_from(["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3"]),
)
def test_any_quantity_of_kubernetes_can_be_read(number: Decimal, suffix: str) -> None:
    text = f"{number}{suffix}"
    assert amount(text) == pytest.approx(float(parse_quantity(text)))


@pytest.mark.parametrize("text", ["", "x", "4 G", "1.2.3", "4gi"])
def test_other_text_is_not_a_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="a quantity"):
        amount(text)


TPU = "google.com/tpu"
LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))


@given(LABELS, st.sampled_from("abc"), st.lists(st.sampled_from("xyz"), min_size=1))
def test_an_expression_and_its_opposite_never_select_the_same_labels(
    labels: dict[str, str], key: str, values: list[str]
) -> None:
    def selected(operator: str) -> bool:
        return selects({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}, labels)

    assert selected("In") == (labels.get(key) in values)
    assert selected("NotIn") != selected("In")
    assert selected("DoesNotExist") != selected("Exists")
    assert selected("Exists") == (key in labels)
    assert selects({"matchLabels": labels}, labels)


def test_init_containers_run_before_the_others_and_sidecars_next_to_them() -> None:
    def container(chips: int, **more: str) -> dict[str, object]:
        return {"resources": {"limits": {TPU: chips}}, **more}

    sidecar = container(1, restartPolicy="Always")
    pod = {"containers": [container(2), container(1)]}
    assert requests(pod) == {TPU: 3}
    assert requests({**pod, "initContainers": [container(4)]}) == {TPU: 4}
    assert requests({**pod, "initContainers": [container(4), sidecar]}) == {TPU: 4}
    assert requests({**pod, "initContainers": [sidecar, container(4)]}) == {TPU: 5}
    assert requests({**pod, "initContainers": [sidecar]}) == {TPU: 4}


def test_queues_of_one_cohort_belong_together() -> None:
    specs = {"a": {"cohort": "x"}, "b": {"cohortName": "x"}, "c": {}, "d": {}}
    queues = [{"metadata": {"name": name}, "spec": spec} for name, spec in specs.items()]
    assert [each["metadata"]["name"] for each in related(queues, "a")] == ["a", "b"]
    assert [each["metadata"]["name"] for each in related(queues, "c")] == ["c"]
