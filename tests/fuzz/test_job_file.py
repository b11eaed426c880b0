"""Manifests of jobs with anything in them: rehearsed, or refused with the file."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.answer import Halt
from cli.rehearse import submission
from cli.rehearse.rehearse import rehearse_file
from infra.cluster import kueue_objects
from infra.cluster.kueue_objects import KueueObjects
from tests.cli.api_server import client, playing
from tests.cli.rehearse.clusters import TPU, cluster, jobset, workload, xpk
from tests.fuzz.damage import damaged, damaged_bytes

_RULE = {"key": "cloud.google.com/gke-tpu-topology", "operator": "In", "values": ["4x4"]}
_TERMS = {"nodeSelectorTerms": [{"matchExpressions": [_RULE]}]}
_POD = {
    "tolerations": [{"key": TPU, "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _TERMS}},
    "initContainers": [{"name": "sidecar", "restartPolicy": "Always"}],
    "priorityClassName": "high",
}
_TEXT = yaml.safe_dump(jobset(pod=_POD))


@cache
def _objects() -> KueueObjects:
    with playing(cluster(*xpk(), workload("holds", 8), workload("waits", 32, None))) as played:
        return kueue_objects.read(client(played), "default")


def _rehearsed_or_refused(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_bytes(content)
        try:
            found = rehearse_file(submission.read(path, None, "default"), _objects())
        except Halt as halt:
            told = str(halt)
        else:
            assert all([each.verdict, *each.lines] for each in found)
            return
    assert "job.yaml" in told


@settings(deadline=None)
@given(damaged_bytes(_TEXT))
def test_a_damaged_file_is_rehearsed_or_refused(content: bytes) -> None:
    _rehearsed_or_refused(content)


@settings(deadline=None)
@given(damaged(lambda: yaml.safe_load(_TEXT), st.none() | st.integers() | st.text() | st.just({}) | st.just([])))
def test_a_manifest_with_wrong_values_is_rehearsed_or_refused(manifest: Any) -> None:
    _rehearsed_or_refused(yaml.safe_dump(manifest, allow_unicode=True).encode(errors="surrogateescape"))
