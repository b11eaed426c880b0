"""Puts the plugins where the Pulumi engine looks, and on the way to PATH what it or a kubeconfig names.

Writes files and starts nothing. What the files do is in `gcp`, `kubernetes` and `gke_auth`.
"""

import shlex
import sys
from importlib.metadata import version
from pathlib import Path

from sandbox.providers.published import published_plugin
from sandbox.site import Site

_CHECKOUT = Path(__file__).parent.parent.parent


def install(site: Site) -> None:
    """Write or renew the site's plugins and programs.

    Raises:
        ProgramsError: the published Kubernetes plugin is asked for and not installed.
    """
    published = published_plugin()
    for name in ("gcp", "kubernetes"):
        folder = site.pulumi_home / "plugins" / f"resource-{name}-v{version(f'pulumi_{name}')}"
        program = folder / f"pulumi-resource-{name}"
        if program.is_symlink():
            program.unlink()
        if name == "kubernetes" and published:
            folder.mkdir(parents=True, exist_ok=True)
            program.symlink_to(published)
        else:
            _write_program(program, f"sandbox.providers.{name}")
    _write_program(site.root / "bin" / "gke-gcloud-auth-plugin", "sandbox.providers.gke_auth")
    # Where there is no language plugin for Python, the engine starts a policy pack by this name.
    _write_program(site.root / "bin" / "pulumi-analyzer-policy-python", "sandbox.providers.analyzer")


def _write_program(path: Path, module: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    search_path = f"PYTHONPATH={shlex.quote(str(_CHECKOUT))}"
    path.write_text(f'#!/bin/sh\n{search_path} exec {shlex.quote(sys.executable)} -m {module} "$@"\n')
    path.chmod(0o755)
