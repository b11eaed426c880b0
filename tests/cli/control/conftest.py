from collections.abc import Generator
from pathlib import Path

import pytest

from cli.deployed import Deployed
from tests.cli.control.cluster import JOBSET, WORKLOAD, Cluster, jobset, priorities, running, workload


@pytest.fixture
def cluster() -> Cluster:
    """One in which the job `train` runs."""
    return Cluster({JOBSET: jobset(), WORKLOAD: workload(), **priorities()})


@pytest.fixture
def stack(cluster: Cluster, tmp_path: Path) -> Generator[Deployed]:
    with running(cluster, tmp_path) as found:
        yield found
