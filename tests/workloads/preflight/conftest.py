import pytest
from jax.sharding import Mesh

from workloads.spec import JobSpec
from workloads.training import step


@pytest.fixture
def compiled_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile steps without the most expensive optimisations. The traffic between chips is the same."""
    pytest.importorskip("libtpu")

    def options(spec: JobSpec, mesh: Mesh) -> dict[str, str]:
        return {"optimization_level": "O0"}

    monkeypatch.setattr(step, "compiler_options", options)
