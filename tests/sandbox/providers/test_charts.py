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


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """The operators of this version, not those before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for operator in (program for program in PROGRAMS if program.name in OPERATORS):
        copied_path(chart_of(operator)).mkdir(parents=True)
        cached_path(operator).parent.mkdir(exist_ok=True)
        cached_path(operator).touch()
    return Programs({})


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
