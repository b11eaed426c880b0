"""`multislice up` and `multislice down` for a stack in Google Cloud, with the user's own Pulumi."""

import os
import subprocess
import sys
from collections.abc import Iterator

from rich.console import Console

from cli import stack_file
from cli.answer import NEGATIVE, Form, Halt, write
from cli.review import review_of
from cli.stack_file import Files, backend_url, check_policy_file, policy_pack
from infra.cluster.stacks import Renewal, Stacks, StacksError, explain_missing_program
from infra.review.answers import answers, find_obstacles
from infra.stack.project import find_project
from infra.stack.settings.stack import Settings

_KMS = "gcpkms://"


def up(stack: str, files: Files, console: Console, renewal: Renewal, *, yes: bool) -> int:
    """Print the review of a stack, then deploy it under the rules of its policy settings. Return the exit status.

    Nothing is deployed if the review says that a job cannot run. Pulumi asks for confirmation unless `yes`.
    """
    path = stack_file.find(stack, files.stacks)
    found = review_of(path)
    write("", answers(found), Form.TEXT, console)
    if obstacles := [*find_obstacles(found)]:
        _say(console, f"nothing was deployed: {'; '.join(obstacles)}")
        return NEGATIVE
    _require_terminal(yes)
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


class Backend:
    """The user's own Pulumi. No operation changes which stack is selected."""

    def __init__(self, files: Files, stacks: Stacks) -> None:
        self._files = files
        self._stacks = stacks

    def up(self, name: str, renewal: Renewal, *, yes: bool) -> None:
        """Create the stack if it does not exist, and deploy its file under the rules of a preview.

        Pulumi asks for confirmation unless `yes`.
        """
        if name not in self._stacks.names():
            self._stacks.ask("stack", "init", name, "--no-select", *self._files.encryption(name))
        settings = self._files.policy(name)
        exceptions: tuple[str, ...] = ()
        if settings.is_file():
            check_policy_file(settings)
            exceptions = ("--policy-pack-config", str(settings))
        pack = ("--policy-pack", str(policy_pack()), *exceptions)
        self._follow("up", "--stack", name, *renewal.options, *pack, yes=yes)

    def destroy(self, name: str, *, yes: bool) -> None:
        """Destroy all resources. Pulumi asks for confirmation unless `yes`."""
        self._follow("destroy", "--stack", name, yes=yes)

    def _follow(self, *arguments: str, yes: bool) -> None:
        """Run a command whose output goes to stderr, where the user can watch it."""
        command = ["pulumi", *arguments, *(("--yes", "--non-interactive") if yes else ())]
        with explain_missing_program("pulumi"):
            ended = subprocess.run(command, cwd=find_project(), stdout=sys.stderr, check=False)
        if ended.returncode:
            raise StacksError(f"`{' '.join(command)}` failed; its output says why")
