"""Stacks of a Pulumi backend: their outputs, access to their clusters and files, and what they publish for members."""

import json
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.cluster.kubernetes import ApiServer, CredentialsError
from infra.stack.command_lines import UserError
from infra.stack.names import CONFIG_MAPS, PUBLISHED, PUBLISHED_KEY
from infra.stack.project import ProjectError, find_project
from infra.stack.published import Published, parse_record


class StacksError(UserError):
    """Raised when Pulumi fails, or the cluster of a stack is unreachable. The message contains the reason."""


@dataclass(frozen=True)
class Renewal:
    """What an update does in addition to the changes of the stack file."""

    refresh: bool = False
    """Whether to read first what exists, so that what was deleted or changed by hand is created or changed back."""
    replace: tuple[str, ...] = ()
    """URNs, or patterns of URNs, of resources to delete and create again."""

    @property
    def options(self) -> list[str]:
        """Options of `pulumi up`."""
        return ["--refresh"] * self.refresh + [word for urn in self.replace for word in ("--replace", urn)]


NO_RENEWAL = Renewal()


class Stacks:
    """The stacks in Google Cloud, in the backend that the user's Pulumi is logged in to."""

    sandbox: Path | None = None
    storage: Mapping[str, str] = {}
    """Options with which gcsfs finds their buckets. Default: those of Google Cloud."""

    def ask(self, *arguments: str) -> str:
        """Run a Pulumi command and return its output.

        Raise StacksError if it fails, `pulumi` is not installed, or the working folder is not in a project.
        """
        try:
            project = find_project()
        except ProjectError as error:
            raise StacksError(str(error)) from None
        return run_command(["pulumi", *arguments, "--non-interactive"], project, None)

    def names(self) -> list[str]:
        """Return the names of the project's stacks in the backend. Raise StacksError if Pulumi cannot list them."""
        answer = self.ask("stack", "ls", "--json")
        with explain_parse_errors("stack ls"):
            return [stack["name"].rpartition("/")[2] for stack in json.loads(answer)]

    def outputs(self, stack: str) -> dict[str, Any]:
        """Return the outputs of a stack's last update.

        Raise StacksError if there is no such stack, or Pulumi cannot report its outputs.
        """
        answer = self.ask("stack", "output", "--json", "--stack", stack)
        with explain_parse_errors("stack output"):
            return dict(json.loads(answer))

    def api(self, outputs: Mapping[str, Any]) -> ApiServer:
        """Return the API server of a stack with these outputs, as the user who runs this.

        Raise StacksError if there are no credentials.
        """
        try:
            return ApiServer.at(outputs["endpoint"])
        except CredentialsError as error:
            raise StacksError(
                f"expected credentials for the cluster {outputs['cluster']}, got: {error}\n"
                "Log in with `gcloud auth login`, and install the plugin:"
                " `gcloud components install gke-gcloud-auth-plugin`"
            ) from None

    def files(self, bucket: str) -> str:
        """Return the path under which this machine finds the files of a bucket `gs://BUCKET`."""
        return bucket


@contextmanager
def explain_parse_errors(command: str) -> Generator[None]:
    """Turn errors in parsing the output of a Pulumi command into a StacksError.

    Raise StacksError if it is not what Pulumi prints.
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise StacksError(
            f"expected JSON from `pulumi {command}`, got something else ({error}); run it to see what it prints:"
            " a wrapper of pulumi, such as a version manager, may add lines of its own"
        ) from None


@contextmanager
def explain_missing_program(name: str) -> Generator[None]:
    """Turn the error of a program that cannot be started into a StacksError.

    Raise StacksError if it is not installed, or may not be executed.
    """
    try:
        yield
    except OSError as error:
        got = "found none" if isinstance(error, FileNotFoundError) else f"got: {error.strerror}"
        raise StacksError(f"expected the program {name} on the PATH, {got}; install Pulumi") from None


def run_command(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None) -> str:
    """Run a command and return its output. Raise StacksError if it fails, or the program is not installed."""
    with explain_missing_program(command[0]):
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise StacksError(f"`{' '.join(command)}` failed: {ended.stderr.strip() or ended.stdout.strip()}")
    return ended.stdout


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
