from typing import Any

import pytest
from jax.sharding import Mesh

from workloads.spec import JobSpec
from workloads.spec.compiler import VMEM
from workloads.training import step


@pytest.fixture
def compiled_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile steps without the most expensive optimisations. The traffic between chips is the same."""
    pytest.importorskip("libtpu")

    def options(spec: JobSpec, mesh: Mesh) -> dict[str, Any]:
        # Blocks of experts' products are as large as this memory allows. Others compile faster with less.
        return {"optimization_level": "O0"} | ({VMEM: spec.vmem_kib} if spec.model.experts else {})

    monkeypatch.setattr(step, "compiler_options", options)
