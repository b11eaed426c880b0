"""Options that several commands share, with shell completion, and the stack or cluster that they select.

Completion reads the stack files of this checkout, so that pressing Tab does not wait for a cluster. It ignores files
that cannot be read.
"""

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from cli import stack_file
from cli.answer import Form, Halt, discard_output, exit_status, write_error
from cli.sandbox_folder import DEFAULT, default_sandbox, is_of_sandbox
from cli.stack_file import STACK_VARIABLE, default_stack
from infra.stack.project import ProjectError

if TYPE_CHECKING:
    from cli.deployed import Deployed


def complete_stacks(incomplete: str) -> list[str]:
    """Return the stacks with a stack file whose names begin with `incomplete`."""
    return [name for name in stack_file.names() if name.startswith(incomplete)]


def complete_jobs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs whose names begin with `incomplete`, of the stack given before on the command line or of all."""
    return [name for name in names_of_jobs(context.params.get("stack")) if name.startswith(incomplete)]


def names_of_jobs(stack: str | None) -> list[str]:
    """Return the jobs in the file of a stack, or in all stack files if `stack` is None."""
    return sorted({name for each in ([stack] if stack else stack_file.names()) for name in _jobs_of(each)})


def _jobs_of(stack: str) -> list[str]:
    sections = stack_file.peek(stack)
    several, only = sections.get("jobs"), sections.get("job")
    named = only.get("name") if isinstance(only, Mapping) else None
    return [str(name) for name in (*(several if isinstance(several, Mapping) else ()), named) if name]


def _or_default(context: typer.Context, given: str) -> str:
    return given if given or context.resilient_parsing else default_stack(else_cluster=False)


def amount(text: str) -> float:
    """Return the number of tokens that an option has, such as 1e12, 800B or 15T. Raise BadParameter if it has none."""
    found = re.fullmatch(r"(\d[\d_]*(?:\.\d+)?(?:e\+?\d+)?)([kmbt]?)", text.strip().lower())
    if not found:
        raise typer.BadParameter(f"expected a number of tokens such as 1e12, 800B or 15T, got {text!r}")
    return float(found[1]) * 1000.0 ** " kmbt".index(found[2] or " ")


Stack = Annotated[
    str,
    typer.Option(
        "--stack",
        "-s",
        envvar=STACK_VARIABLE,
        default_factory=str,
        callback=_or_default,
        show_default="the stack that Pulumi has selected",
        help="Name of the stack file stacks/Pulumi.STACK.yaml.",
        autocompletion=complete_stacks,
    ),
]
Output = Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="Format of the answer and of errors.")]
TableOutput = Annotated[
    Form,
    typer.Option(
        "--output", "-o", help="Format of the answer and of errors. markdown: for a comment on a pull request."
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also show how the review finds its answers.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Job = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        help="Name of a job, or NAMESPACE/JOB if several namespaces have one. Default: the only job.",
        autocompletion=complete_jobs,
    ),
]


Kubeconfig = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Kubeconfig of the cluster, without access to Pulumi. Default: as kubectl."),
]
Context = Annotated[
    str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig. Default: its current context.")
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of the jobs. Default: that of the context."),
]
_NO_CHOICE: Mapping[str, str | None] = {"kubeconfig": None, "context": None, "namespace": None}
_chosen: ContextVar[Mapping[str, str | None]] = ContextVar("kubectl", default=_NO_CHOICE)


def _kubectl(kubeconfig: Kubeconfig = None, context: Context = None, namespace: Namespace = None) -> None:
    """Declare the options that select a stack by a namespace of its cluster. Each of them replaces `--stack`."""


class ClusterCommand(TyperCommand):
    """A command about a stack that Pulumi or a kubeconfig selects."""

    needs_stack = True
    """Whether it needs a stack, so that without a kubeconfig the one that Pulumi has selected is meant."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        declared = typer.Typer(add_completion=False)
        declared.command()(_kubectl)
        self._kubectl = typer.main.get_command(declared).params
        # The stack that Pulumi has selected is only needed without a kubeconfig.
        next(each for each in self.params if each.name == "stack").callback = None
        self.params += self._kubectl

    def invoke(self, ctx: Any) -> Any:
        chosen = {str(each.name): ctx.params.pop(each.name) for each in self._kubectl}
        # With a job file, other options describe the cluster.
        instead = [name for name, value in {**chosen, "job-file": ctx.params.get("job_file")}.items() if value]
        if instead:
            # The environment may also have them.
            names = ("stack", "engine", "sandbox")
            if given := [name for name in names if ctx.get_parameter_source(name).name == "COMMANDLINE"]:
                words = ", ".join(f"--{name}" for name in instead)
                raise Halt(f"expected --stack or {words}, got {words} and --{', --'.join(given)}")
            ctx.params["stack"] = None
        else:
            ctx.params["stack"] = ctx.params["stack"] or (
                default_stack(else_cluster=True) if self.needs_stack else None
            )
        token = _chosen.set(chosen)
        try:
            return super().invoke(ctx)
        finally:
            _chosen.reset(token)


class ReadingCommand(ClusterCommand):
    """A command about a stack, or about any cluster that a kubeconfig selects: see `chosen_stack`."""

    needs_stack = False


def chosen_stack(stack: str | None, engine: "Engine | None", sandbox: Path | None) -> str | None:
    """Return the stack on the command line, or the one that Pulumi has selected. None: a kubeconfig selects a cluster,
    if there are no options and the working folder is in no project, that of kubectl."""
    if stack or any(kubectl().values()):
        return stack
    try:
        return default_stack(else_cluster=True)
    except ProjectError:
        if engine or sandbox:
            raise
        return None


def kubectl() -> Mapping[str, str | None]:
    """Return the kubeconfig, context and namespace that the running command was given."""
    return _chosen.get()


class Commands(TyperGroup):
    """Exits with the status that a command returns, or with 1 after a wrong command line: typer's 2 has a meaning."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_IN_JSON] = _in_json(args)
        with _without_answer(ctx):
            return super().parse_args(ctx, list(_with_folder(args)))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command as typer does. Raise Halt if a command that takes only options is given a stack's name."""
        name, command, words = super().resolve_command(ctx, args)
        params = command.params if command else []
        only_options = all(each.param_type_name == "option" for each in params)
        if only_options and words and not words[0].startswith("-") and any(each.name == "stack" for each in params):
            raise Halt(f"{name} takes only options, got {words[0]!r}; select a stack with `-s {words[0]}`")
        return name, command, words

    def invoke(self, ctx: Any) -> Any:
        command = super().invoke
        with _without_answer(ctx):
            raise typer.Exit(exit_status(lambda: command(ctx), in_json=ctx.meta[_IN_JSON]))


_IN_JSON = "cli.options.in_json"
"""Key of a command line's context: whether errors are printed as JSON."""


@contextmanager
def _without_answer(context: Any) -> Generator[None]:
    try:
        yield
    except TyperException as error:
        if context.meta[_IN_JSON]:
            write_error(error.format_message(), in_json=True)
            raise typer.Exit(1) from None
        error.exit_code = 1
        raise
    except (BrokenPipeError, SystemExit):
        raise typer.Exit(discard_output()) from None


def _in_json(words: Sequence[str]) -> bool:
    pairs = zip(words, words[1:], strict=False)
    return not {"--output=json", "-ojson"}.isdisjoint(words) or any(
        option in ("--output", "-o") and value == "json" for option, value in pairs
    )


def _with_folder(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command line, with the default folder after an option `--sandbox` without a folder."""
    for word, following in zip_longest(words, words[1:]):
        yield word
        if word == "--sandbox" and (following is None or following.startswith("-")):
            yield str(DEFAULT)


Engine = Literal["pulumi", "sandbox"]
"""Pulumi engine that a command uses, with its state and cloud."""
On = Annotated[
    Engine | None,
    typer.Option(
        "--engine",
        help="pulumi: your own Pulumi and its backend. sandbox: the sandbox on this machine. Default: sandbox with"
        " --sandbox or if the stack file has cloud.project: sandbox, otherwise pulumi.",
    ),
]
Sandbox = Annotated[
    Path | None,
    typer.Option(
        "--sandbox",
        metavar="[DIR]",
        help=f"Use the sandbox in this folder. Without a folder: {DEFAULT} in the project.",
    ),
]


def folder_of(stack: str | None, engine: Engine | None, sandbox: Path | None) -> Path | None:
    """Return the folder of the sandbox that has the stack. None: use the user's own Pulumi.

    Raise Halt if the options contradict each other.
    """
    if engine == "pulumi" and sandbox:
        raise Halt(f"--sandbox needs --engine sandbox, got --engine pulumi and --sandbox {sandbox}")
    if sandbox and sandbox != DEFAULT:
        return sandbox
    implied = engine is None and stack is not None and is_of_sandbox(stack)
    return default_sandbox() if sandbox or engine == "sandbox" or implied else None


def deployed_of(stack: str | None, engine: Engine | None, sandbox: Path | None) -> "Deployed":
    """Return the stack that a `ClusterCommand` is about. Raise as `deployed` and `deployed_by_kubeconfig` do."""
    from cli.deployed import Kubectl, deployed, deployed_by_kubeconfig

    if (chosen := Kubectl(**kubectl())).words:
        return deployed_by_kubeconfig(chosen)
    assert stack, "a command without a kubeconfig has a stack"
    return deployed(stack, folder_of(stack, engine, sandbox))


def observed_of(stack: str | None, engine: Engine | None, sandbox: Path | None) -> "Deployed":
    """Return the stack or the cluster that a `ReadingCommand` is about.

    Raise as `deployed` and `observed_by_kubeconfig` do.
    """
    from cli.deployed import Kubectl, deployed, observed_by_kubeconfig

    if named := chosen_stack(stack, engine, sandbox):
        return deployed(named, folder_of(named, engine, sandbox))
    return observed_by_kubeconfig(Kubectl(**kubectl()))
