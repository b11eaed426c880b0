"""Reads from a cluster what a stack publishes for the members of a team."""

from pydantic import ValidationError

from infra.kubernetes import ApiServer
from infra.names import CONFIG_MAPS, PUBLISHED, PUBLISHED_KEY
from infra.published import Published


class RecordError(ValueError):
    """Raised when another version of the program published the record."""


def read_published(api: ApiServer, namespace: str) -> Published | None:
    """Return the record in a namespace. `None`: there is none, because the namespace is not that of a team.

    Raises:
        RecordError: Another version of the program wrote it.
        UNREACHABLE: The API server does not answer, or refuses.
    """
    found = api.find(f"{CONFIG_MAPS.format(namespace)}/{PUBLISHED}")
    if found is None:
        return None
    try:
        return Published.model_validate_json(found["data"][PUBLISHED_KEY])
    except (ValidationError, KeyError, TypeError):
        raise RecordError(
            f"expected the ConfigMap {PUBLISHED} in namespace {namespace} in the format of this version, got another;"
            " install the version with which the stack was deployed, or let its owner run `multislice up -s STACK` with"
            " this one"
        ) from None
