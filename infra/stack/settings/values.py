"""Value types of a stack file: texts that must match a pattern, zones, and the placeholder of a secret.

Secrets pass from Pulumi to the cluster only in `infra.job`. Everywhere else settings contain `Hidden` in their place.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Network
from typing import Annotated, cast

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from infra.stack.settings.errors import nearest

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


NAMESPACE = "tpu-multislice"
"""Namespace of the program's keys in Pulumi's configuration, whatever the name of the project."""
PROJECT_OF_SANDBOX = "sandbox"
"""Project that the file of a stack for the sandbox names."""
MOST_INT32 = 2**31 - 1
"""Largest number that most fields of Kubernetes' objects can hold."""
SECRETS = "secrets"
"""The only section of a stack file that may hold secrets."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The name of an environment variable."""
VARIABLE_RULE = "an environment variable's name of letters, digits and underscores, no digit first"
_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")


def _matching(pattern: str | re.Pattern[str], expected: str) -> AfterValidator:
    """Return a check that the whole text matches a pattern. `expected` describes a valid text."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(expected)
        return text

    return AfterValidator(check)


def _name(length: int) -> AfterValidator:
    """Return the check of a name that is used for Kubernetes and Google Cloud objects."""
    expected = f"a name of at most {length} lower-case letters, digits and hyphens that begins with a letter"

    def check(text: str) -> str:
        if len(text) <= length and _NAME.fullmatch(text):
            return text
        meant = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
        if len(meant) <= length and _NAME.fullmatch(meant):
            raise PydanticCustomError("name", "{expected}", {"expected": expected, "meant": meant})
        raise ValueError(expected)

    return AfterValidator(check)


def _image(text: str) -> str:
    if re.fullmatch(r"[^\s@]+@sha256:[0-9a-f]{64}", text):
        return text
    expected = "an image by digest, REPOSITORY@sha256:<64 hexadecimal digits>, since tags move"
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)*(:[\w.-]+)?", text):
        raise ValueError(expected)
    of_google = re.match(r"[a-z0-9-]+-docker\.pkg\.dev/|([a-z]+\.)?gcr\.io/", text)
    google = f"gcloud artifacts docker images describe {text} --format='value(image_summary.fully_qualified_digest)'"
    other = f"docker buildx imagetools inspect {text}"
    fix = f"write what this command prints: {google}" if of_google else f"write the digest that this prints: {other}"
    raise PydanticCustomError("image", "{expected}", {"expected": expected, "fix": fix})


def _absolute_path(of: str) -> AfterValidator:
    return _matching(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._-]+)+", f"the absolute path of {of}, without . and ..")


def _instant(text: str) -> str:
    expected = "a time in UTC, such as 2026-01-03T02:00:00Z, in quotation marks"
    if not _INSTANT.fullmatch(text):
        raise ValueError(expected)
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{expected} ({error})") from None
    return text


def _range(text: str) -> str:
    try:
        IPv4Network(text)
    except ValueError:
        raise ValueError("a range of IPv4 addresses, such as 10.0.0.0/18, whose first address is its network") from None
    return text


def _labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    bad = [key for key, value in labels.items() if not (_LABEL.fullmatch(key) and _LABEL_VALUE.fullmatch(value))]
    if bad:
        raise ValueError(
            "keys and values of at most 63 lower-case letters, digits, hyphens and underscores, keys beginning with a"
            f" letter (invalid: {', '.join(bad)})"
        )
    return labels


def _region(text: str) -> str:
    """Refuse names that cannot be regions. A region that is new has another number than those of
    `infra.stack.settings.values`."""
    if re.fullmatch(r"[a-z]+-[a-z]+\d+", text) and text.rstrip("0123456789") in PLACES:
        return text
    expected = "a region of Google Cloud, such as us-east5"
    if text in {zone for zones in ZONES.values() for zone in zones}:
        meant = text.rpartition("-")[0]
    else:
        meant = {name.replace("-", ""): name for name in ZONES}.get(re.sub(r"[^a-z0-9]", "", text.lower()), "")
    if meant := meant or nearest(text, ZONES):
        raise PydanticCustomError("region", "{expected}", {"expected": expected, "meant": meant})
    raise ValueError(expected)


VariableName = Annotated[str, _matching(VARIABLE, VARIABLE_RULE)]
PortName = Annotated[
    str,
    _matching(
        r"(?=.*[a-z])(?!.*--)[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?",
        "the name of a port, of at most 15 lower-case letters, digits and single hyphens, with at least one letter",
    ),
]
MountPath = Annotated[str, _absolute_path("a folder, such as /var/cache")]
FilePath = Annotated[str, _absolute_path("a file, such as /tmp/alive")]
HttpPath = Annotated[str, _matching(r"/[\x21-\x7e]*", "the path of a request, such as /healthz")]
VolumeName = Annotated[str, _name(40)]
ProjectName = Annotated[str, _name(30)]
ClusterName = Annotated[str, _name(20)]
"""Short, because the bucket's name consists of the project (at most 30 characters) and this name."""
ExistingClusterName = Annotated[
    str, _name(40), Field(json_schema_extra={"pattern": "^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$"})
]
Recurrence = Annotated[
    str,
    _matching(r"FREQ=(DAILY|WEEKLY).*", "FREQ=DAILY or FREQ=WEEKLY, as RFC 5545 writes it"),
    Field(json_schema_extra={"pattern": "^FREQ=(DAILY|WEEKLY)"}),
]
GroupName = Annotated[str, _name(30)]
"""Node pools add an index. Their names have at most 40 characters."""
TeamName = Annotated[str, _name(40)]
JobName = Annotated[str, _name(26)]
"""The coordinator's name contains it twice, and is a label of at most 63 characters."""
DnsLabel = Annotated[str, _name(63)]
BucketName = Annotated[
    str, _matching(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", "the name of a bucket, without gs:// and without folders")
]
DiskImage = Annotated[
    str,
    _matching(
        r"projects/[a-z0-9.:-]+/global/images/[a-z0-9-]+",
        "a disk image by its full name, projects/PROJECT/global/images/IMAGE",
    ),
]
KmsKey = Annotated[
    str,
    _matching(
        r"projects/[a-z0-9.:-]+/locations/[a-z0-9-]+/keyRings/[\w-]+/cryptoKeys/[\w-]+",
        "a key by its full name, projects/PROJECT/locations/REGION/keyRings/RING/cryptoKeys/KEY",
    ),
]
BillingAccount = Annotated[
    str,
    _matching(
        r"[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}",
        "an account as `gcloud billing accounts list` shows it, such as 012345-6789AB-CDEF01",
    ),
]
CpuMachine = Annotated[
    str,
    _matching(
        r"[a-z]\d[a-z]*-(standard|highmem|highcpu|megamem|ultramem|hypermem)-\d+(-lssd|-metal)?"
        r"|([a-z]\d[a-z]*-)?custom-\d+-\d+(-ext)?|e2-(small|medium)",
        "a machine type of Compute Engine without accelerators, such as e2-standard-4",
    ),
]
PinnedImage = Annotated[str, AfterValidator(_image)]
Email = Annotated[
    str,
    _matching(
        r"[a-z0-9._%+-]+@[a-z0-9-]+(\.[a-z0-9-]+)+",
        "an address of Google's directory in lower case, such as person@example.com",
    ),
]
"""In lower case, because RBAC treats an address with other letters as another person."""
SecurityGroup = Annotated[
    str,
    _matching(
        r"gke-security-groups@[a-z0-9-]+(\.[a-z0-9-]+)+",
        "gke-security-groups@ and your domain, the only name that GKE accepts",
    ),
]
Region = Annotated[str, AfterValidator(_region)]
Instant = Annotated[str, AfterValidator(_instant)]
Cidr = Annotated[str, AfterValidator(_range)]
Labels = Annotated[Mapping[str, str], AfterValidator(_labels)]


@dataclass(frozen=True)
class Hidden:
    """Placeholder for a text that Pulumi keeps as a secret."""

    def __repr__(self) -> str:
        return "[secret]"


HIDDEN = Hidden()


def is_encrypted(value: object) -> bool:
    """Return whether a value of a stack file is a secret, as Pulumi writes it."""
    return isinstance(value, Mapping) and list(cast(Mapping[str, object], value)) == ["secure"]


def hide_encrypted(value: object) -> object:
    """Return the content of a stack file with `HIDDEN` in place of each encrypted text."""
    if is_encrypted(value):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: hide_encrypted(item) for key, item in cast(Mapping[str, object], value).items()}
    if isinstance(value, list):
        return [hide_encrypted(item) for item in cast(list[object], value)]
    return value


def hide_texts(value: object) -> object:
    """Return a decrypted section with `HIDDEN` in place of each text, and `None` in place of anything else."""
    if not isinstance(value, Mapping):
        return None
    entries = cast(Mapping[str, object], value)
    return {name: HIDDEN if isinstance(text, str) and text else None for name, text in entries.items()}
