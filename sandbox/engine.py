"""The real Pulumi engine on one stack of the sandbox, through the Automation API.

The program is the project's own `__main__.py`. The state is in the site's folder, and the plugins are those of
`sandbox.providers`. Pulumi's working folder is a copy of `Pulumi.yaml` and the stack file, because the engine writes
its salt into the stack file. The sandbox does not have the key of the secrets in that file and uses placeholders for
them.
"""

import json
import os
import runpy
import secrets
import shutil
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pulumi
import yaml
from pulumi import automation

from infra.cluster.kubernetes import UNREACHABLE
from infra.stack.project import PROJECT_FILE, find_project
from infra.stack.settings.values import NAMESPACE, SECRETS, hide_encrypted, is_encrypted
from sandbox.daemon import SandboxError
from sandbox.programs import Programs
from sandbox.providers.charts import local_charts
from sandbox.providers.installation import install, published_plugin
from sandbox.recovery import lock_holder, pending, taken_in, unread
from sandbox.site import SITE_VARIABLE, Site, administrator

OnEvent = Callable[[automation.EngineEvent], None]

STACK_TYPE = "pulumi:pulumi:Stack"
_UNREACHED = ("Resource monitor has terminated", "failed to connect to all addresses")
"""Messages for a call that does not reach the engine: the SDK's (pulumi/runtime/settings.py, grpc_error_to_exception),
and gRPC's own if the call was to write the log."""


def with_second_try[Done](operation: Callable[[OnEvent], Done], on_event: OnEvent) -> Done:
    """Return the result of `operation`. It is repeated once if its program could not reach the engine at all.

    gRPC shares the state of an address between all channels of a process. If an engine listens on a port at which a
    connection to an earlier engine failed a moment ago, the program's first call fails without an attempt. Nothing has
    been declared by then, and the next engine listens on another port.
    """
    declared = False

    def noting(event: automation.EngineEvent) -> None:
        nonlocal declared
        resource, diagnostic = event.resource_pre_event, event.diagnostic_event
        declared = declared or (resource is not None and resource.metadata.type != STACK_TYPE)
        if not (diagnostic and _is_unreached(diagnostic.message)):
            on_event(event)

    try:
        return operation(noting)
    except automation.CommandError as error:
        if declared or not _is_unreached(str(error)):
            raise
    return operation(on_event)


def _is_unreached(message: str) -> bool:
    return any(text in message for text in _UNREACHED)


STAND_IN = "sandbox"
"""Placeholder for a secret whose value the sandbox does not know."""

_ENCRYPTION = ("encryptionsalt", "encryptedkey", "secretsprovider")
"""Keys of a stack file that describe the encryption of its secrets."""
_FOR_THE_PROGRAM = ("PATH", "SSL_CERT_FILE", SITE_VARIABLE)
_SECRETS = f"{NAMESPACE}:{SECRETS}"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@dataclass(frozen=True)
class PolicyPack:
    """Policy pack that a plan must pass."""

    folder: Path
    """With a `PulumiPolicy.yaml`."""
    settings: Path | None
    """Levels and exceptions in the format of `--policy-pack-config`. `None`: every rule has its default level, and
    there are no exceptions."""


class Engine:
    """Preview, up, refresh and destroy of one stack file on a running sandbox."""

    def __init__(
        self,
        site: Site,
        programs: Programs,
        stack_file: Path,
        policy: PolicyPack | None = None,
        secrets: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`stack_file` is a `Pulumi.STACK.yaml`, in the repository or elsewhere.

        Previews and `up` must pass `policy`, if it is given. `secrets` are values of the section `secrets` by name;
        the others get a placeholder.
        """
        self._site = site
        self._programs = programs
        self._stack_file = stack_file
        self._secrets = secrets
        self._packs = [str(policy.folder)] if policy else None
        self._pack_settings = [str(policy.settings)] if policy and policy.settings else None

    def program(self) -> None:
        """Declare the resources, with the project's own program."""
        if published_plugin():
            charts = local_charts(self._programs, self._site.root / "charts")
            pulumi.runtime.register_resource_transform(charts)
        runpy.run_path(str(find_project() / "__main__.py"), run_name="__main__")

    def recover(self) -> str | None:
        """Remove the lock of an engine that was killed, and add the resources that it had created to the state.

        Returns:
            A sentence about the changes; `None` if no engine was killed.

        Raises:
            SandboxError: the process that holds the lock is still running.
            CommandError: Pulumi failed.
        """
        stack = self._stack
        lock = ""
        if holder := lock_holder(self._site, stack.name):
            if holder.runs:
                raise SandboxError(
                    f"process {holder.pid} is changing the stack {stack.name}; wait until it has ended, or end it with"
                    f" `kill {holder.pid}`, and run this again"
                )
            stack.cancel()
            lock = f"lifted the lock of process {holder.pid}, which has ended; "
        made = self._take_in()
        return f"{lock}took in {made} resources that it had made" if lock or made else None

    def _take_in(self) -> int:
        """Add the resources that a killed engine had created to the state. Return their number."""
        # The Automation API would write secrets in plain text.
        exported = json.loads(self._pulumi("stack", "export"))
        state = exported["deployment"] or {}
        if created := pending(self._site, state):
            state = taken_in(state, created)
            corrected = self._site.root / "recovered.json"
            corrected.write_text(json.dumps({**exported, "deployment": state}))
            self._pulumi("stack", "import", "--file", str(corrected))
            corrected.unlink()
        # If this process is killed between the two steps, the next recovery reads these resources.
        if made := unread(state):
            self._stack.refresh(target=made)
        return len(made)

    def _pulumi(self, *arguments: str) -> str:
        stack = self._stack
        command = [*arguments, "--stack", stack.name]
        return stack.workspace.pulumi_command.run(command, stack.workspace.work_dir, environment(self._site)).stdout

    def preview(self, on_event: OnEvent, save_plan: Path | None = None) -> automation.PreviewResult:
        """Preview `up`, and write the plan to `save_plan`. Raises CommandError if the plan is refused."""
        return self._run(
            lambda tell: self._stack.preview(
                on_event=tell,
                policy_packs=self._packs,
                policy_pack_configs=self._pack_settings,
                plan=str(save_plan.resolve()) if save_plan else None,
            ),
            on_event,
        )

    def preview_after_refresh(self, on_event: OnEvent) -> None:
        """Preview a refresh and the `up` after it. Raises CommandError if the plan is refused."""
        self._run(lambda tell: self._stack.preview(on_event=tell, refresh=True), on_event)

    def up(
        self, on_event: OnEvent, plan: Path | None = None, replace: Sequence[str] = (), *, refresh: bool = False
    ) -> Mapping[str, Any]:
        """Carry out the program, or exactly `plan`, and return the stack's outputs. Raises CommandError when a step
        fails.

        `replace` are URNs of resources to replace, or patterns of URNs, as for `pulumi up --replace`. `refresh` reads
        the actual state first, as `pulumi up --refresh` does.
        """
        done = self._run(
            lambda tell: self._stack.up(
                on_event=tell,
                policy_packs=self._packs,
                policy_pack_configs=self._pack_settings,
                plan=str(plan.resolve()) if plan else None,
                replace=list(replace),
                refresh=refresh,
            ),
            on_event,
        )
        return {name: output.value for name, output in done.outputs.items()}

    def refresh(self, on_event: OnEvent) -> automation.RefreshResult:
        return self._stack.refresh(on_event=on_event)

    def destroy(self, on_event: OnEvent, agreed: Collection[str] = ()) -> None:
        """Destroy the stack as `pulumi destroy` does, without running the program.

        The policies of `infra.stack.admission_policies` whose names are in `agreed` only warn. Raises CommandError when
        a step fails or another of these policies refuses.
        """
        with self._only_warning(agreed):
            self._stack.destroy(on_event=on_event)

    @contextmanager
    def _only_warning(self, policies: Collection[str]) -> Generator[None]:
        """Make these policies warn, and refuse again if the body fails."""
        refusing: list[str] = []
        # An unreachable cluster refuses nothing, and the destroy reports it.
        with suppress(*UNREACHABLE):
            listed = administrator(self._site).request("GET", BINDINGS)["items"] if policies else []
            bindings = [each for each in listed if each["spec"]["policyName"] in policies]
            refusing = [each["metadata"]["name"] for each in bindings if "Deny" in each["spec"]["validationActions"]]
            self._set_action(refusing, "Warn")
        try:
            yield
        except automation.CommandError:
            with suppress(*UNREACHABLE):
                self._set_action(refusing, "Deny")
            raise

    def _set_action(self, bindings: Iterable[str], action: str) -> None:
        for name in bindings:
            administrator(self._site).patch(f"{BINDINGS}/{name}", {"spec": {"validationActions": [action]}})

    def resources(self) -> list[dict[str, Any]]:
        """Return the resources in the state, except providers and the stack itself."""
        if not (self._site.root / "state").exists():
            return []
        state = self._stack.export_stack().deployment or {}
        return [
            resource
            for resource in state.get("resources", [])
            if resource["type"] != STACK_TYPE and not resource["type"].startswith("pulumi:providers:")
        ]

    def destroyable(self) -> bool:
        return any(resource.get("custom") for resource in self.resources())

    @cached_property
    def _stack(self) -> automation.Stack:
        install(self._site)
        # Pulumi logs every value of every call, which takes half of its time and cannot be switched off.
        # A file in place of the log folder prevents it.
        self._site.pulumi_home.mkdir(exist_ok=True)
        (self._site.pulumi_home / "logs").touch()
        written = yaml.safe_load(self._stack_file.read_text())
        content = {key: value for key, value in written.items() if key not in _ENCRYPTION}
        content["config"], encrypted_keys = _split(written["config"])
        copy = project_folder(self._site) / "stacks" / self._stack_file.name
        if copy.exists():
            # The engine wrote its salt there and cannot read its own state with another salt.
            earlier = yaml.safe_load(copy.read_text())
            content |= {key: earlier[key] for key in ("encryptionsalt",) if key in earlier}
        copy.write_text(yaml.safe_dump(content, sort_keys=False))
        name = self._stack_file.name.removeprefix("Pulumi.").removesuffix(".yaml")
        stack = stack_in(self._site, self._programs, name, self.program)
        given = {_secret_key(name): value for name, value in self._secrets.items()}
        if concealed := dict.fromkeys(encrypted_keys, STAND_IN) | given:
            values = {key: automation.ConfigValue(value, secret=True) for key, value in concealed.items()}
            stack.set_all_config(values, path=True)
        return stack

    def _run[Done](self, operation: Callable[[OnEvent], Done], on_event: OnEvent) -> Done:
        """Return the result of `operation`. Its program, which runs in this process, finds the credential plugin and
        certificates as the engine does."""
        before = {name: os.environ.get(name) for name in _FOR_THE_PROGRAM}
        ours = environment(self._site)
        os.environ.update({name: ours[name] for name in _FOR_THE_PROGRAM})
        try:
            return with_second_try(operation, on_event)
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                os.environ.update({} if value is None else {name: value})


def stack_in(site: Site, programs: Programs, name: str, program: Callable[[], None]) -> automation.Stack:
    """Return the stack of that name in the sandbox's state, created if necessary, with a program for its operations."""
    options = automation.LocalWorkspaceOptions(
        work_dir=str(project_folder(site)),
        env_vars=environment(site),
        pulumi_command=automation.PulumiCommand(root=str(programs.path("pulumi").parent.parent)),
    )
    return automation.create_or_select_stack(name, project_name="tpu-multislice", program=program, opts=options)


def project_folder(site: Site) -> Path:
    """Pulumi's working folder; its stack files are copies."""
    project = site.root / "project"
    (project / "stacks").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(find_project() / PROJECT_FILE, project / PROJECT_FILE)
    (site.root / "state").mkdir(exist_ok=True)
    return project


def environment(site: Site) -> dict[str, str]:
    """Return the variables by which Pulumi finds the sandbox's state, programs and certificates."""
    passphrase = site.root / "passphrase"
    if not passphrase.exists():
        passphrase.touch(mode=0o600)
        passphrase.write_text(secrets.token_hex(16))
    return {
        # Pulumi would write content types to files next to the state without replacing them atomically: a command that
        # reads the state while an `up` writes it would sometimes fail (EOF).
        "PULUMI_BACKEND_URL": f"file://{site.root / 'state'}?metadata=skip",
        "PULUMI_CONFIG_PASSPHRASE": passphrase.read_text(),
        "PULUMI_HOME": str(site.pulumi_home),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        # The state is written at every step. The sandbox does not need a second copy.
        "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PATH": f"{site.root / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "SSL_CERT_FILE": str(site.pki / "trust.crt"),
        SITE_VARIABLE: str(site.root),
    }


def _secret_key(name: str) -> str:
    return f'{_SECRETS}["{name}"]'


def _split(config: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the plain part of a configuration, and the keys of the rest: names in `secrets`, other sections as a
    whole."""
    plain = {key: value for key, value in config.items() if hide_encrypted(value) == value}
    keys = [key for key in config if key not in plain]
    if isinstance(names := config.get(_SECRETS), dict) and _SECRETS in keys:
        plain[_SECRETS] = {name: value for name, value in names.items() if not is_encrypted(value)}
        keys += [_secret_key(name) for name in names if name not in plain[_SECRETS]]
        keys.remove(_SECRETS)
    return plain, keys
