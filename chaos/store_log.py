"""What clients have read from the sandbox's GCS server, from its log. Pure."""

import re
from collections.abc import Iterable
from urllib.parse import unquote

_REQUEST = re.compile(r'"(?P<method>GET|POST|PUT) (?P<url>\S+) HTTP/1\.1\\?" (?P<status>[0-9]{3}) ')
_CHECKPOINT = re.compile(r"/checkpoints/(?P<step>[0-9]+)/(?P<file>[^?&]+)")
_COMMIT = "commit_success.txt"


def reads_of_arrays(lines: Iterable[str], job: str) -> int:
    """Return how often arrays of complete checkpoints of `job` were read.

    Whoever writes a checkpoint also reads from it, but only before its commit.
    """
    complete: set[str] = set()
    reads = 0
    for line in lines:
        if not (found := _REQUEST.search(line)) or not found["status"].startswith("2"):
            continue
        url = unquote(found["url"])
        if f"/{job}/runs/" not in url and f"={job}/runs/" not in url:
            continue
        if not (about := _CHECKPOINT.search(url)):
            continue
        if found["method"] != "GET":
            complete |= {about["step"]} if about["file"].endswith(_COMMIT) and "/" not in about["file"] else set()
        elif about["step"] in complete and about["file"].startswith("state/") and "alt=media" in url:
            reads += 1
    return reads
