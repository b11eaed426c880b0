"""An operator that is down for a while, as `kubectl scale deployment --replicas=0` takes it down.

Owns the way down and back up. What happens meanwhile is the fault's.
"""

from collections.abc import Generator
from contextlib import contextmanager

from chaos.field import Field
from infra.kubernetes import Json
from sandbox.operators import program_of

_DEPLOYMENTS = "/apis/apps/v1/deployments"
_SECONDS = 60


@contextmanager
def operator_down(field: Field, name: str) -> Generator[None]:
    """No process of the operator `name` runs inside the context; afterwards it answers again."""
    replicas = _deployment(field, name)["spec"]["replicas"]
    _scale(field, name, 0)
    try:
        yield
    finally:
        _scale(field, name, replicas)


def _deployment(field: Field, name: str) -> Json:
    (found,) = [each for each in field.objects(_DEPLOYMENTS) if program_of(each) == name]
    return found


def _scale(field: Field, name: str, replicas: int) -> None:
    metadata = _deployment(field, name)["metadata"]
    path = f"/apis/apps/v1/namespaces/{metadata['namespace']}/deployments/{metadata['name']}"
    field.api.patch(path, {"spec": {"replicas": replicas}})
    field.wait(f"{replicas} replicas of {name}", lambda: _settled(_deployment(field, name), replicas), _SECONDS)


def _settled(deployment: Json, replicas: int) -> bool:
    status = deployment["status"]
    seen = status.get("observedGeneration") == deployment["metadata"]["generation"]
    return seen and status.get("availableReplicas", 0) == replicas
