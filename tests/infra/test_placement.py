"""Which nodes a job may use, and what keeps each of its slices in one node pool."""

from typing import Any

import pytest

from infra.jobset import render
from infra.settings.errors import SettingsError
from infra.settings.read import parse
from tests.infra.one_job import submitted
from tests.infra.recording import Values, run_program

FLEX = {"kind": "flex-start", "max_run_hours": 24}
QUEUED = {"kind": "queued", "max_run_hours": 2}
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_POOL = "cloud.google.com/gke-nodepool"


def with_capacities(values: Values, *capacities: object, slices: int = 2) -> Values:
    """A job that falls back from one group of equal slices to the next: first, second and so on."""
    names = ["first", "second", "third"][: len(capacities)]
    of_group = dict(zip(names, capacities, strict=True))
    values["slices"] = {
        name: {**values["slices"]["trillium"], "capacity": capacity} for name, capacity in of_group.items()
    }
    values["teams"]["research"]["quota"] = dict.fromkeys(names, 16)
    values["job"]["slices"] = {"group": names[0], "fallback": names[1:], "count": slices}
    return values


def jobset(values: Values) -> Any:
    return render(submitted(values))


def template(rendered: Any) -> Any:
    return rendered["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]


def told(values: Values) -> list[str]:
    with pytest.raises(SettingsError) as raised:
        parse(values)
    return [str(fault) for fault in raised.value.errors]


def test_a_job_with_fallback_selects_what_its_groups_share_and_names_them(values: Values) -> None:
    pod = template(jobset(with_capacities(values, "on-demand", QUEUED, slices=1)))["spec"]
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "2x4",
    }
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    wanted = {"key": "slice-group", "operator": "In", "values": ["first", "second"]}
    assert required == {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    tolerated = [each["key"] for each in pod["tolerations"] if each["effect"] == "NoSchedule"]
    assert tolerated == ["google.com/tpu", "cloud.google.com/gke-queued"]


def test_a_pod_stays_on_a_node_that_is_out_of_touch_however_long(values: Values) -> None:
    pod = template(jobset(values))["spec"]
    assert [each for each in pod["tolerations"] if each["effect"] == "NoExecute"] == [
        {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute"}
        for state in ("not-ready", "unreachable")
    ]


@pytest.mark.parametrize(
    ("capacities", "exclusive", "together"),
    [
        (("on-demand", "spot"), True, False),
        (("spot", FLEX), False, True),
        (("on-demand", QUEUED), True, False),
        ((QUEUED, QUEUED), False, False),
    ],
    ids=["standing", "one that waits for pods", "one by request", "by request alone"],
)
def test_the_most_demanding_group_says_what_keeps_a_slice_together(
    values: Values, capacities: tuple[object, ...], exclusive: bool, together: bool
) -> None:
    rendered = jobset(with_capacities(values, *capacities, slices=1))
    assert rendered["metadata"].get("annotations", {}).get(EXCLUSIVE) == (NODE_POOL if exclusive else None)
    assert ("podAffinity" in template(rendered)["spec"]["affinity"]) == together


def test_a_job_that_may_be_queued_asks_for_the_shortest_run_that_its_groups_grant(values: Values) -> None:
    longer = {**QUEUED, "max_run_hours": 3}
    rendered = jobset(with_capacities(values, "spot", longer, QUEUED, slices=1))
    assert rendered["metadata"]["annotations"]["provreq.kueue.x-k8s.io/maxRunDurationSeconds"] == "7200"


def test_topology_awareness_takes_the_place_of_exclusive_topology(values: Values) -> None:
    values["scheduling"] = {"placement": "topology-aware"}
    rendered = jobset(with_capacities(values, "spot", "on-demand"))
    assert "annotations" not in rendered["metadata"]
    assert template(rendered)["metadata"]["annotations"] == {
        "kueue.x-k8s.io/podset-slice-required-topology": NODE_POOL,
        "kueue.x-k8s.io/podset-slice-size": "2",
    }


@pytest.mark.parametrize(
    ("capacities", "replaced"), [(("spot",), False), (("spot", "on-demand"), True), ((QUEUED,), True)]
)
def test_a_priority_changes_in_place_unless_kueue_owns_the_node_selector(
    values: Values, capacities: tuple[object, ...], replaced: bool
) -> None:
    recording = run_program(with_capacities(values, *capacities, slices=1))
    request = recording.named("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-tiny").request
    assert ('metadata.labels["kueue.x-k8s.io/priority-class"]' in request.replaceOnChanges) == replaced


def test_slices_by_request_and_slices_for_waiting_pods_do_not_mix(values: Values) -> None:
    (fault,) = told(with_capacities(values, FLEX, QUEUED, slices=1))
    assert "got second (queued) beside first (flex-start); remove one" in fault


def test_every_group_of_a_fallback_has_the_slices_and_their_shape(values: Values) -> None:
    with_capacities(values, "spot", "spot", "spot")
    values["slices"]["second"] |= {"topology": "4x4"}
    values["slices"]["third"] |= {"count": 1}
    values["teams"]["research"]["quota"] |= {"third": 8}
    faults = told(values)
    assert any("groups of v6e 2x4 on ct6e-standard-4t, as first, got second of v6e 4x4" in fault for fault in faults)
    assert any("at most the 1 slices of third" in fault for fault in faults)


def test_a_mounted_bucket_and_the_hosts_network_do_not_mix(values: Values) -> None:
    values["datasets"] = {"bucket": "text", "mount": True}
    values["job"]["host_network"] = True
    (fault,) = told(values)
    assert fault.startswith("datasets.mount: expected no mount with job.host_network")
