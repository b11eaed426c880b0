"""Reads from a cluster what a stack publishes for the members of a team."""

from infra.cluster.kubernetes import ApiServer
from infra.stack.names import CONFIG_MAPS, PUBLISHED, PUBLISHED_KEY
from infra.stack.published import Published, parse_record


def read_published(api: ApiServer, namespace: str) -> Published | None:
    """Return the record in a namespace. `None`: there is none, because the namespace is not that of a team.

    Raises:
        RecordError: The record has a newer major version, or is damaged.
        UNREACHABLE: The API server does not answer, or refuses.
    """
    found = api.find(f"{CONFIG_MAPS.format(namespace)}/{PUBLISHED}")
    if found is None:
        return None
    text = (found.get("data") or {}).get(PUBLISHED_KEY, "")
    return parse_record(text, f"the ConfigMap {PUBLISHED} in namespace {namespace}")
