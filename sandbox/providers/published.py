"""The published Kubernetes plugin in place of the stand-in, where the user has installed it and asks for it.

Charts still come from the sandbox's own folders, so that no registry is asked.
"""

import os
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import pulumi

from sandbox.catalog import ProgramsError
from sandbox.programs import Programs
from sandbox.providers.charts import CHART, NOT_SERVED

VARIABLE = "KUBERNETES_PLUGIN"
"""Environment variable that asks for it; its only value is `published`."""

_PULUMI_HOME = "PULUMI_HOME"

type Transform = Callable[[pulumi.ResourceTransformArgs], pulumi.ResourceTransformResult | None]


def published_plugin() -> Path | None:
    """The published plugin in the version of the SDK; None: nobody asks for it.

    Raises:
        ProgramsError: it is asked for, and Pulumi has not installed it.
    """
    asked = os.environ.get(VARIABLE)
    if asked is None:
        return None
    if asked != "published":
        raise ProgramsError(f"{VARIABLE} must be `published` or unset, got {asked!r}")
    needed = version("pulumi_kubernetes")
    home = Path(os.environ.get(_PULUMI_HOME) or Path.home() / ".pulumi")
    path = home / "plugins" / f"resource-kubernetes-v{needed}" / "pulumi-resource-kubernetes"
    if not os.access(path, os.X_OK):
        raise ProgramsError(
            f"{VARIABLE}=published needs the published plugin, and there is none at {path}; install it with"
            f" `pulumi plugin install resource kubernetes {needed}`, or unset {VARIABLE}"
        )
    return path


def local_charts(programs: Programs, folder: Path) -> Transform:
    """A transform that makes each chart of the program one of the sandbox's, copied below `folder`."""

    def transform(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
        inputs = cast("dict[str, Any]", args.props)
        # The plugin registers the component once more, without inputs, when it begins to make it.
        if args.type_ != CHART or "chart" not in inputs:
            return None
        name = str(inputs["chart"]).rpartition("/")[2]
        chart = programs.operator(name, inputs.get("version")).chart
        copy = folder / chart.parent.parent.name / name
        if not copy.is_dir():
            shutil.copytree(chart, copy, ignore=_not_served)
        return pulumi.ResourceTransformResult({**inputs, "chart": str(copy)}, args.opts)

    return transform


def _not_served(folder: str, names: list[str]) -> list[str]:
    paths = [path for name in names if (path := Path(folder) / name).suffix == ".yaml"]
    return [path.name for path in paths if any(f"kind: {kind}\n" in path.read_text() for kind in NOT_SERVED)]
