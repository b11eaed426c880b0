"""Installs the plugins where the Pulumi engine looks for them, and the programs that it or a kubeconfig calls on PATH.

The Kubernetes plugin is the sandbox's own, or the published one if the user has installed and selected it.
"""

import os
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

from infra.stack.project import IMPORTED_FROM
from sandbox.programs import ProgramsError
from sandbox.site import Site

VARIABLE = "KUBERNETES_PLUGIN"
"""Environment variable that selects the published plugin with its only value, `published`."""

_CREDENTIAL_MINUTES = 6
"""Lifetime of a token. Short, so that clients must ask for another: those in Python do so five minutes before a token
ends, here after one. The API server accepts the token for longer."""

_ANALYZER = f"""for argument; do
  shift
  # The engine passes on the options of the pack's PulumiPolicy.yaml, which name another environment.
  case $argument in -*) ;; *) set -- "$@" "$argument" ;; esac
done
# Unbuffered: the pack prints its port and keeps running.
exec {shlex.quote(sys.executable)} -u -m pulumi.policy "$@\""""
"""Runs a policy pack in this Python, as Pulumi's language plugin does on a user's machine."""


def install(site: Site) -> None:
    """Write or renew the site's plugins and programs.

    Raises ProgramsError if the published Kubernetes plugin is selected but not installed.
    """
    published = published_plugin()
    for name in ("gcp", "kubernetes", "docker-build"):
        module = name.replace("-", "_")
        folder = site.pulumi_home / "plugins" / f"resource-{name}-v{version(f'pulumi_{module}')}"
        program = folder / f"pulumi-resource-{name}"
        if program.is_symlink():
            program.unlink()
        if name == "kubernetes" and published:
            folder.mkdir(parents=True, exist_ok=True)
            program.symlink_to(published)
        else:
            search_path = f"PYTHONPATH={shlex.quote(str(IMPORTED_FROM))}"
            _write_script(program, f'{search_path} exec {shlex.quote(sys.executable)} -m {__package__}.{module} "$@"')
    _write_script(site.root / "bin" / "gke-gcloud-auth-plugin", _credential_plugin(site))
    # Without a language plugin for Python, the engine starts a policy pack by this name.
    _write_script(site.root / "bin" / "pulumi-analyzer-policy-python", _ANALYZER)


def _write_script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _credential_plugin(site: Site) -> str:
    """Return a script that prints an ExecCredential with the administrator's token, in place of Google's plugin.

    The kubeconfig of a GKE cluster names it; kubectl and the kubernetes plugin run it.
    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
    """
    status = '"status": {"token": "%s", "expirationTimestamp": "%s"}'
    credential = f'{{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", {status}}}'
    token = f'"$(cat {shlex.quote(str(site.pki / "admin.token"))})"'
    ends = f'"$(date -u -d "+{_CREDENTIAL_MINUTES} minutes" +%Y-%m-%dT%H:%M:%SZ)"'
    return f"printf {shlex.quote(credential)} {token} {ends}"


def published_plugin() -> Path | None:
    """Return the path of the published plugin in the SDK's version; None if it is not selected.

    Raises ProgramsError if it is selected, but Pulumi has not installed it.
    """
    asked = os.environ.get(VARIABLE)
    if asked is None:
        return None
    if asked != "published":
        raise ProgramsError(f"{VARIABLE} must be `published` or unset, got {asked!r}")
    needed = version("pulumi_kubernetes")
    home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    path = home / "plugins" / f"resource-kubernetes-v{needed}" / "pulumi-resource-kubernetes"
    if not os.access(path, os.X_OK):
        raise ProgramsError(
            f"{VARIABLE}=published needs the published plugin, and {path} does not exist; install it with"
            f" `pulumi plugin install resource kubernetes {needed}`, or unset {VARIABLE}"
        )
    return path
