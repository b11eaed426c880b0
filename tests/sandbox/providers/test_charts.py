import re
from pathlib import Path

import pulumi
import pytest

from sandbox.programs import (
    OPERATORS,
    PREVIOUS,
    PROGRAMS,
    Operator,
    Programs,
    cached_path,
    chart_of,
    copied_path,
    version_of,
)
from sandbox.providers.charts import local_charts, render, type_token
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
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """The operators of this version, not those before, and in place of Helm a script that prints objects."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for operator in (program for program in PROGRAMS if program.name in OPERATORS):
        copied_path(chart_of(operator)).mkdir(parents=True)
        cached_path(operator).parent.mkdir(exist_ok=True)
        cached_path(operator).touch()
    helm = tmp_path / "helm"
    helm.write_text(HELM.replace("%s", "$*").replace("'END'", "END"))
    helm.chmod(0o755)
    return Programs({"helm": helm})


def test_the_chart_of_the_last_path_element_is_rendered_for_its_namespace(programs: Programs) -> None:
    newest = version_of(next(program for program in PROGRAMS if program.name == "kueue"))
    inputs = {"chart": "oci://example.org/charts/kueue@sha256:0", "version": f"v{newest}", "namespace": "kueue-system"}
    arguments = render(inputs, "queue", programs)[0]["data"]["arguments"]
    assert arguments.startswith(f"template queue {programs.operator('kueue', newest).chart} ")
    assert "--namespace kueue-system" in arguments
    assert "--include-crds" in arguments


def test_hooks_and_aggregated_apis_are_left_out(programs: Programs) -> None:
    kinds = [manifest["kind"] for manifest in render({"chart": "kueue"}, "queue", programs)]
    assert kinds == ["ConfigMap", "CustomResourceDefinition"]


def test_schemas_lose_their_prose_but_no_property(programs: Programs) -> None:
    schema = render({"chart": "kueue"}, "queue", programs)[1]["spec"]["schema"]
    assert schema == {"properties": {"description": {"type": "string"}}}


def test_an_unknown_version_is_refused_with_a_list_of_the_known_ones(programs: Programs) -> None:
    known = ", ".join(version_of(program) for program in (*PROGRAMS, *PREVIOUS) if program.name == "kueue")
    with pytest.raises(Refusal, match=re.escape(f"has versions {known}, got 0.1.0; set one of them")):
        render({"chart": "kueue", "version": "0.1.0"}, "queue", programs)


def test_the_version_before_is_refused_with_the_command_that_builds_it(programs: Programs) -> None:
    (before,) = [version_of(program) for program in PREVIOUS if program.name == "kueue"]
    with pytest.raises(Refusal, match=f"kueue {before} is not built yet; build it with `python -m cli.programs --prev"):
        render({"chart": "kueue", "version": before}, "queue", programs)


def test_an_unknown_chart_is_refused_with_those_there_are(programs: Programs) -> None:
    with pytest.raises(Refusal, match="no chart 'volcano'; it has jobset, kueue"):
        render({"chart": "oci://example.org/volcano"}, "v", programs)


def test_types_carry_the_group_and_version() -> None:
    assert type_token({"apiVersion": "v1", "kind": "Service"}) == "kubernetes:core/v1:Service"
    assert type_token({"apiVersion": "apps/v1", "kind": "Deployment"}) == "kubernetes:apps/v1:Deployment"


def test_the_published_plugin_gets_the_sandboxs_charts_without_what_no_server_here_answers_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chart = tmp_path / "programs" / "of-one-lock" / "charts" / "kueue"
    (chart / "templates").mkdir(parents=True)
    (chart / "templates" / "service.yaml").write_text("kind: Service\n")
    (chart / "templates" / "visibility.yaml").write_text("kind: APIService\n")
    monkeypatch.setattr(
        Programs, "operator", lambda _self, name, version: {("kueue", "1"): Operator(chart, chart)}[name, version]
    )
    transform = local_charts(Programs({}), tmp_path / "copies")

    def declared(resource_type: str, **props: str) -> pulumi.ResourceTransformArgs:
        return pulumi.ResourceTransformArgs(False, resource_type, "kueue", props, pulumi.ResourceOptions())

    assert transform(declared("kubernetes:core/v1:Namespace")) is None
    # The plugin registers each chart once more, without inputs.
    assert transform(declared("kubernetes:helm.sh/v4:Chart")) is None
    for _ in range(2):
        changed = transform(
            declared("kubernetes:helm.sh/v4:Chart", chart="oci://example.org/charts/kueue", version="1")
        )
        assert changed
        copy = Path(str(changed.props["chart"]))
        assert copy.name == "kueue"
        assert [path.name for path in (copy / "templates").iterdir()] == ["service.yaml"]
