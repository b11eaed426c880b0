"""`multislice up` and `multislice down` for a stack in Google Cloud, with the user's own Pulumi."""

import os
import sys
from collections.abc import Iterator

from rich.console import Console

from cli import stack_file
from cli.answer import NEGATIVE, Form, Halt, write
from cli.backend import Backend
from cli.project_files import Files
from cli.review import review_of
from cli.selected import backend_url
from infra.cluster.stacks import Renewal, Stacks
from infra.review.answers import answers, find_obstacles
from infra.stack.project import find_project
from infra.stack.settings.stack import Settings

_KMS = "gcpkms://"


def up(stack: str, files: Files, console: Console, renewal: Renewal, *, yes: bool) -> int:
    """Print the review of a stack, then deploy it under the rules of its policy settings. Return the exit status.

    Nothing is deployed if the review says that a job cannot run. Pulumi asks for confirmation unless `yes`.
    """
    path = stack_file.find(stack, files.stacks)
    _require_terminal(yes)
    found = review_of(path)
    write("", answers(found), Form.TEXT, console)
    if obstacles := [*find_obstacles(found)]:
        _say(console, f"nothing was deployed: {'; '.join(obstacles)}")
        return NEGATIVE
    Backend(files, Stacks()).up(stack, renewal, yes=yes)
    _say(console, f"{stack} is up; watch its job with `multislice status -s {stack} --watch`")
    return 0


def down(stack: str, files: Files, console: Console, *, yes: bool) -> int:
    """Destroy a stack and list what remains. Return the exit status. Pulumi asks for confirmation unless `yes`."""
    settings = stack_file.read(stack_file.find(stack, files.stacks))
    _require_terminal(yes)
    if settings.cluster.deletion_protection:
        raise Halt(
            f"expected {stack} without cluster.deletion_protection; set it to false in {files.stack(stack)}, deploy"
            f" that with `multislice up -s {stack}`, then run this again"
        )
    Backend(files, Stacks()).destroy(stack, yes=yes)
    _say(console, "\n".join(["what remains, with the commands that remove it:", *_remains(stack, files, settings)]))
    return 0


def _remains(stack: str, files: Files, settings: Settings) -> Iterator[str]:
    yield f"  checkpoints: gcloud storage rm --recursive gs://{settings.checkpoint_bucket}"
    yield f"  disks of volume claims: gcloud compute disks list --project={settings.cloud.project} --filter=name~^pvc-"
    yield f"  the stack with its history: pulumi stack rm {stack}"
    keys = [stack_file.content(files.stack(stack)).get("secretsprovider"), settings.cluster.encryption_key]
    for key in (key.removeprefix(_KMS) for key in keys if isinstance(key, str) and key.startswith((_KMS, "projects/"))):
        yield f"  a key, unless others use it: gcloud kms keys versions destroy 1 --key={key}"
    state = backend_url(find_project(), os.environ)
    if state and state.startswith("gs://"):
        yield f"  the state, unless other stacks are in it: gcloud storage rm --recursive {state}"


def _require_terminal(yes: bool) -> None:
    if not yes and not sys.stdin.isatty():
        raise Halt("expected a terminal to ask for confirmation; nothing was changed. Add --yes to confirm")


def _say(console: Console, message: str) -> None:
    console.print(message, markup=False, highlight=False, soft_wrap=True)
