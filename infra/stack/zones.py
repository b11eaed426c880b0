"""Regions of Google Cloud and their zones."""

import re

_MOST = "abc"
_OTHERS = {"europe-west1": "bcd", "us-central1": "abcf", "us-central2": "abcd", "us-east1": "bcd"}
_NUMBERS = {
    "africa-south": (1,),
    "asia-east": (1, 2),
    "asia-northeast": (1, 2, 3),
    "asia-south": (1, 2),
    "asia-southeast": (1, 2, 3),
    "australia-southeast": (1, 2),
    "europe-central": (2,),
    "europe-north": (1, 2),
    "europe-southwest": (1,),
    "europe-west": (1, 2, 3, 4, 6, 8, 9, 10, 12),
    "me-central": (1, 2),
    "me-west": (1,),
    "northamerica-northeast": (1, 2),
    "northamerica-south": (1,),
    "southamerica-east": (1,),
    "southamerica-west": (1,),
    "us-central": (1, 2),
    "us-east": (1, 4, 5),
    "us-south": (1,),
    "us-west": (1, 2, 3, 4),
}
PLACES = frozenset(_NUMBERS)
"""Names of all regions without their numbers."""
_REGIONS = [f"{place}{number}" for place, numbers in _NUMBERS.items() for number in numbers]
ZONES = {region: tuple(f"{region}-{letter}" for letter in _OTHERS.get(region, _MOST)) for region in _REGIONS}
"""Zones by region (https://docs.cloud.google.com/compute/docs/regions-zones). Their AI zones, such as `us-south1-ai1b`,
are not listed, because Google adds them more often."""
_AI_ZONE = re.compile(r"-ai\d+[a-z]?")


def is_zone(zone: str, region: str) -> bool:
    """Return whether a region has a zone. A region that is not listed may have any."""
    if not zone.startswith(f"{region}-"):
        return False
    if region not in ZONES:
        return bool(re.fullmatch(r"-[a-z0-9]+", zone.removeprefix(region)))
    return zone in ZONES[region] or bool(_AI_ZONE.fullmatch(zone.removeprefix(region)))
