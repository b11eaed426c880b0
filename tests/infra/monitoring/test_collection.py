"""Metrics collection, compared with the rendered pods and with the pods and roles of the charts."""

from typing import Any

import pytest

from infra.monitoring import controller_monitoring
from infra.stack.controllers import JOBSET, KUEUE
from infra.stack.names import JOBSET_NAMESPACE, KUEUE_NAMESPACE
from sandbox import builds
from sandbox.providers.charts import render
from tests.chain.stack import ignore

CONTROLLERS = [("jobset", JOBSET_NAMESPACE, JOBSET.version), ("kueue", KUEUE_NAMESPACE, KUEUE.version)]


@pytest.mark.parametrize(("name", "namespace", "version"), CONTROLLERS, ids=lambda each: str(each))
def test_what_is_asked_of_a_controller_is_what_its_chart_has(name: str, namespace: str, version: str) -> None:
    chart: Any = render({"chart": name, "version": version, "namespace": namespace}, name, builds.prepare(ignore))
    wanted: Any = controller_monitoring(name)
    spec = wanted["metrics"]["spec"]
    (deployment,) = (found for found in chart if found["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (endpoint,) = spec["endpoints"]
    ports = [port["name"] for container in template["spec"]["containers"] for port in container["ports"]]
    assert endpoint["port"] in ports
    named = ("ClusterRole", wanted["reader"]["roleRef"]["name"])
    (role,) = (found for found in chart if (found["kind"], found["metadata"]["name"]) == named)
    assert role["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
