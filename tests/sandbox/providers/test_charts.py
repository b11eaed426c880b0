from pathlib import Path

import pytest

from sandbox.programs import Programs
from sandbox.providers.charts import render, type_token
from sandbox.providers.plugin import Refusal

HELM = """#!/bin/sh
cat <<'END'
apiVersion: v1
kind: ConfigMap
metadata: {name: arguments}
data: {arguments: "%s"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: hook, annotations: {helm.sh/hook: post-install}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.visibility}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.org}
spec: {schema: {description: prose, properties: {description: {type: string, description: prose}}}}
END
"""


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """A chart of version 0.19.2, and in place of Helm a script that prints objects."""
    helm, chart = tmp_path / "helm", tmp_path / "kueue"
    helm.write_text(HELM.replace("%s", "$*").replace("'END'", "END"))
    helm.chmod(0o755)
    chart.mkdir()
    (chart / "Chart.yaml").write_text("version: 0.19.2\n")
    return Programs({"helm": helm}, {"kueue": chart})


def test_the_chart_of_the_last_path_element_is_rendered_for_its_namespace(programs: Programs) -> None:
    inputs = {"chart": "oci://example.org/charts/kueue", "version": "v0.19.2", "namespace": "kueue-system"}
    arguments = render(inputs, "queue", programs)[0]["data"]["arguments"]
    assert arguments.startswith(f"template queue {programs.chart('kueue')} ")
    assert "--namespace kueue-system" in arguments
    assert "--include-crds" in arguments


def test_hooks_and_aggregated_apis_are_left_out(programs: Programs) -> None:
    kinds = [manifest["kind"] for manifest in render({"chart": "kueue"}, "queue", programs)]
    assert kinds == ["ConfigMap", "CustomResourceDefinition"]


def test_schemas_lose_their_prose_but_no_property(programs: Programs) -> None:
    schema = render({"chart": "kueue"}, "queue", programs)[1]["spec"]["schema"]
    assert schema == {"properties": {"description": {"type": "string"}}}


def test_another_version_than_the_shipped_one_is_refused(programs: Programs) -> None:
    with pytest.raises(Refusal, match=r"ships version 0\.19\.2, got 0\.18\.0"):
        render({"chart": "kueue", "version": "0.18.0"}, "queue", programs)


def test_an_unknown_chart_is_refused_with_those_there_are(programs: Programs) -> None:
    with pytest.raises(Refusal, match="no chart 'volcano'; it has kueue"):
        render({"chart": "oci://example.org/volcano"}, "v", programs)


def test_types_carry_the_group_and_version() -> None:
    assert type_token({"apiVersion": "v1", "kind": "Service"}) == "kubernetes:core/v1:Service"
    assert type_token({"apiVersion": "apps/v1", "kind": "Deployment"}) == "kubernetes:apps/v1:Deployment"
