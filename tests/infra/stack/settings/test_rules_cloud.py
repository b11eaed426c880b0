"""Rules of place and slices."""

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from infra.stack.settings.read import parse
from infra.stack.settings.rules_cloud import narrowest_prefix, pod_addresses
from tests.infra.recording import Values, stack_values
from tests.infra.spoiling import errors_of


@hypothesis_settings(deadline=None, max_examples=25)
@given(st.integers(2, 2000), st.integers(1, 20))
def test_a_stack_is_accepted_with_the_prefixes_that_its_faults_name(slices: int, system_nodes: int) -> None:
    values = stack_values("dev")
    values["slices"]["trillium"]["count"] = slices
    values["cluster"] |= {"system_nodes": system_nodes, "system_machine_type": "e2-standard-32"}
    nodes = narrowest_prefix(slices * 2 + system_nodes + 6)
    pods = narrowest_prefix(pod_addresses(slices * 2, system_nodes + 1))
    values["network"] = {"nodes": f"10.0.0.0/{nodes}", "pods": f"10.16.0.0/{min(pods, 21)}"}
    assert errors_of(values) == {}
    values["network"] = {"nodes": f"10.0.0.0/{nodes + 1}", "pods": f"10.16.0.0/{pods + 1}"}
    faults = errors_of(values)
    assert f"a /{nodes} or wider" in faults["network.nodes"]
    assert "network.pods" in faults


def test_a_second_network_needs_no_job_of_another_group_that_sees_it(values: Values) -> None:
    values["slices"]["trillium"]["second_network"] = True
    values["slices"]["other"] = values["slices"]["trillium"] | {"second_network": False}
    values["job"]["slices"]["group"] = "other"
    values["teams"]["research"]["quota"]["other"] = 16
    assert parse(values).second_network
