"""Stacks of a Pulumi backend: their outputs, and the way to their clusters and files."""

import json
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infra.kubernetes import ApiServer, CredentialsError

CHECKOUT = Path(__file__).parent.parent


class StacksError(Exception):
    """Pulumi failed, or the cluster of a stack cannot be reached; the message says why."""


class Stacks:
    """The stacks in Google Cloud, of the user's own Pulumi and whatever backend it is logged in to."""

    sandbox: Path | None = None
    """Folder of the sandbox that has the stacks."""

    def ask(self, *arguments: str) -> str:
        """Run a command of Pulumi and return what it prints.

        Raises:
            StacksError: it fails, or there is no `pulumi`.
        """
        return printed(["pulumi", *arguments, "--non-interactive"], CHECKOUT, None)

    def outputs(self, stack: str) -> dict[str, Any]:
        """Return the outputs of a stack's last update.

        Raises:
            StacksError: there is no such stack, or Pulumi does not say.
        """
        answer = self.ask("stack", "output", "--json", "--stack", stack)
        with understood("stack output"):
            return dict(json.loads(answer))

    def api(self, outputs: Mapping[str, Any]) -> ApiServer:
        """Return the API server of a stack with these outputs, as the user who runs this.

        Raises:
            StacksError: there are no credentials.
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
        """Return where this machine finds the files of a bucket `gs://BUCKET`."""
        return bucket


@contextmanager
def understood(command: str) -> Generator[None]:
    """Read what a command of Pulumi printed.

    Raises:
        StacksError: it is not what Pulumi prints.
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise StacksError(
            f"expected JSON from `pulumi {command}`, got something else ({error}); run it to see what it prints:"
            " a wrapper of pulumi, such as a version manager, may add lines of its own"
        ) from None


def printed(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None) -> str:
    """Run a command and return what it prints.

    Raises:
        StacksError: it fails, or there is no such program.
    """
    try:
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        got = "found none" if isinstance(error, FileNotFoundError) else f"got: {error.strerror}"
        raise StacksError(f"expected the program {command[0]} on the PATH, {got}; install Pulumi") from None
    if ended.returncode:
        raise StacksError(f"`{' '.join(command)}` failed: {ended.stderr.strip() or ended.stdout.strip()}")
    return ended.stdout
