"""Texts with a pattern that may appear in a stack file, and the mark for a secret."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, cast

from pydantic import AfterValidator

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The name of an environment variable."""


_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


_IMAGE = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")


_KMS_KEY = re.compile(r"projects/[a-z0-9.:-]+/locations/[a-z0-9-]+/keyRings/[\w-]+/cryptoKeys/[\w-]+")


_DISK_IMAGE = re.compile(r"projects/[a-z0-9.:-]+/global/images/[a-z0-9-]+")


_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


_EMAIL = re.compile(r"[a-z0-9._%+-]+@[a-z0-9-]+(\.[a-z0-9-]+)+")


_MACHINE = re.compile(
    r"[a-z]\d[a-z]*-(standard|highmem|highcpu|megamem|ultramem|hypermem)-\d+(-lssd|-metal)?"
    r"|([a-z]\d[a-z]*-)?custom-\d+-\d+(-ext)?"
    r"|e2-(small|medium)"
)


_SECURITY_GROUP = re.compile(r"gke-security-groups@[a-z0-9-]+(\.[a-z0-9-]+)+")


_PORT = re.compile(r"(?=.*[a-z])[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?")


_ABSOLUTE_PATH = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._-]+)+")


_HTTP_PATH = re.compile(r"/[\x21-\x7e]*")


_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}")


_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")


def _at_most(length: int) -> Callable[[str], str]:
    """A check for names that become names of Kubernetes and Google Cloud objects."""

    def check(name: str) -> str:
        if len(name) > length or not _NAME.fullmatch(name):
            raise ValueError(
                f"a name of at most {length} lower-case letters, digits and hyphens that begins with a letter"
            )
        return name

    return check


def _pinned(reference: str) -> str:
    if not _IMAGE.fullmatch(reference):
        raise ValueError("an image by digest, REPOSITORY@sha256:<64 hexadecimal digits>, since tags move")
    return reference


def _bucket(name: str) -> str:
    if not _BUCKET.fullmatch(name):
        raise ValueError("the name of a bucket, without gs:// and without folders")
    return name


def _disk_image(name: str) -> str:
    if not _DISK_IMAGE.fullmatch(name):
        raise ValueError("a disk image by its full name, projects/PROJECT/global/images/IMAGE")
    return name


def _kms_key(name: str) -> str:
    if not _KMS_KEY.fullmatch(name):
        raise ValueError("a key by its full name, projects/PROJECT/locations/REGION/keyRings/RING/cryptoKeys/KEY")
    return name


def _machine(name: str) -> str:
    if not _MACHINE.fullmatch(name):
        raise ValueError("a machine type of Compute Engine without accelerators, such as e2-standard-4")
    return name


def _email(address: str) -> str:
    if not _EMAIL.fullmatch(address):
        raise ValueError("an address of Google's directory in lower case, such as person@example.com")
    return address


def _security_group(address: str) -> str:
    if not _SECURITY_GROUP.fullmatch(address):
        raise ValueError("gke-security-groups@ and your domain, the only name that GKE takes")
    return address


def _instant(text: str) -> str:
    expectation = "a time in UTC, such as 2026-01-03T02:00:00Z, in quotation marks"
    if not _INSTANT.fullmatch(text):
        raise ValueError(expectation)
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{expectation} ({error})") from None
    return text


def _variable(name: str) -> str:
    if not VARIABLE.fullmatch(name):
        raise ValueError(VARIABLE_RULE)
    return name


def _port(name: str) -> str:
    if not _PORT.fullmatch(name) or "--" in name:
        raise ValueError(
            "the name of a port, of at most 15 lower-case letters, digits and single hyphens, one letter at least"
        )
    return name


def _absolute_path(of: str) -> Callable[[str], str]:
    def check(path: str) -> str:
        if not _ABSOLUTE_PATH.fullmatch(path):
            raise ValueError(f"the absolute path of {of}, without . and ..")
        return path

    return check


def _http_path(path: str) -> str:
    if not _HTTP_PATH.fullmatch(path):
        raise ValueError("the path of a request, such as /healthz")
    return path


def _labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    bad = [key for key, value in labels.items() if not (_LABEL.fullmatch(key) and _LABEL_VALUE.fullmatch(value))]
    if bad:
        raise ValueError(
            "keys and values of at most 63 lower-case letters, digits, hyphens and underscores, keys beginning with a"
            f" letter (not so: {', '.join(bad)})"
        )
    return labels


VARIABLE_RULE = "an environment variable's name of letters, digits and underscores, no digit first"


VariableName = Annotated[str, AfterValidator(_variable)]


PortName = Annotated[str, AfterValidator(_port)]


MountPath = Annotated[str, AfterValidator(_absolute_path("a folder, such as /var/cache"))]


FilePath = Annotated[str, AfterValidator(_absolute_path("a file, such as /tmp/alive"))]


HttpPath = Annotated[str, AfterValidator(_http_path)]


VolumeName = Annotated[str, AfterValidator(_at_most(40))]


ProjectName = Annotated[str, AfterValidator(_at_most(30))]


ClusterName = Annotated[str, AfterValidator(_at_most(20))]
"""Short, for the bucket's name holds the project (at most 30 characters) and this."""


GroupName = Annotated[str, AfterValidator(_at_most(30))]
"""Node pools add an index and end at 40 characters."""


TeamName = Annotated[str, AfterValidator(_at_most(40))]


JobName = Annotated[str, AfterValidator(_at_most(26))]
"""Twice in the coordinator's name, which is a label of at most 63 characters."""


DnsLabel = Annotated[str, AfterValidator(_at_most(63))]


BucketName = Annotated[str, AfterValidator(_bucket)]


DiskImage = Annotated[str, AfterValidator(_disk_image)]


KmsKey = Annotated[str, AfterValidator(_kms_key)]


CpuMachine = Annotated[str, AfterValidator(_machine)]


PinnedImage = Annotated[str, AfterValidator(_pinned)]


Email = Annotated[str, AfterValidator(_email)]
"""In lower case: for RBAC, letters of another case are another person."""


SecurityGroup = Annotated[str, AfterValidator(_security_group)]


Instant = Annotated[str, AfterValidator(_instant)]


Labels = Annotated[Mapping[str, str], AfterValidator(_labels)]


SECTION = "secrets"
"""The one section of a stack file that may hold secrets."""


@dataclass(frozen=True)
class Hidden:
    """A text that Pulumi keeps as a secret."""

    def __repr__(self) -> str:
        return "[secret]"


HIDDEN = Hidden()


def encrypted(value: object) -> bool:
    """Whether this is how Pulumi writes a secret into a stack file."""
    return isinstance(value, Mapping) and list(cast(Mapping[str, object], value)) == ["secure"]


def of_file(value: object) -> object:
    """What stands in a stack file, with a mark for each encrypted text."""
    if encrypted(value):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: of_file(item) for key, item in cast(Mapping[str, object], value).items()}
    if isinstance(value, list):
        return [of_file(item) for item in cast(list[object], value)]
    return value


def of_texts(value: object) -> object:
    """A decrypted section: a mark for each text in it, None for what is no text."""
    if not isinstance(value, Mapping):
        return None
    entries = cast(Mapping[str, object], value)
    return {name: HIDDEN if isinstance(text, str) and text else None for name, text in entries.items()}
