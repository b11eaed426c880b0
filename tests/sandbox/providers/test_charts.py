import re
from pathlib import Path

import pulumi
import pytest

from infra.cluster.kubernetes import Json
from sandbox.programs import (
    OPERATORS,
    PREVIOUS,
    PROGRAMS,
    Operator,
    Program,
    Programs,
    cached_path,
    chart_of,
    copied_path,
    version_of,
)
from sandbox.providers.charts import local_charts, render
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
    (newest,) = _versions(PROGRAMS)
    inputs = {"chart": "oci://example.org/charts/kueue@sha256:0", "version": f"v{newest}", "namespace": "kueue-system"}
    arguments = render(inputs, "queue", programs)[0]["data"]["arguments"]
    assert arguments.startswith(f"template queue {programs.operator('kueue', newest).chart} ")
    assert "--namespace kueue-system" in arguments
    assert "--include-crds" in arguments


def test_hooks_aggregated_apis_and_prose_in_schemas_are_left_out(programs: Programs) -> None:
    config, definition = render({"chart": "kueue"}, "queue", programs)
    assert (config["kind"], definition["kind"]) == ("ConfigMap", "CustomResourceDefinition")
    assert definition["spec"]["schema"] == {"properties": {"description": {"type": "string"}}}


def _versions(*where: tuple[Program, ...]) -> list[str]:
    return [version_of(program) for programs in where for program in programs if program.name == "kueue"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            {"chart": "kueue", "version": "0.1.0"},
            f"has versions {', '.join(_versions(PROGRAMS, PREVIOUS))}, got 0.1.0; set one of them",
        ),
        (
            {"chart": "kueue", "version": _versions(PREVIOUS)[0]},
            f"kueue {_versions(PREVIOUS)[0]} is not built yet; build it with `python -m cli.programs --prev",
        ),
        ({"chart": "oci://example.org/volcano"}, "no chart 'volcano'; it has jobset, kueue"),
    ],
    ids=["an unknown version", "the version before", "an unknown chart"],
)
def test_what_the_sandbox_does_not_have_is_refused_with_what_to_do(
    programs: Programs, inputs: Json, message: str
) -> None:
    with pytest.raises(Refusal, match=re.escape(message)):
        render(inputs, "queue", programs)


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
