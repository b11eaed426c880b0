"""`make programs` finds or builds the Go programs and shows its progress."""

from typing import Annotated

import typer

from cli.progress import about
from sandbox.builds import (
    ACTIONLINT,
    API_DOCUMENTS,
    PROMTOOL,
    BuildProgress,
    expected_seconds,
    missing,
    prepare,
    prepare_copy,
    prepare_one,
    prepare_previous,
)
from sandbox.programs import PROGRAMS, ProgramsError, cache_folder, existing, version_of
from workloads.terminal import Terminal

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.command()
def main(
    previous: Annotated[
        bool, typer.Option("--previous", help="Also build JobSet and Kueue of the previous minor version.")
    ] = False,
) -> None:
    """Find or build the sandbox's programs."""
    console = Terminal()
    shown: set[tuple[str, str]] = set()

    def line(progress: BuildProgress) -> str:
        return f"{progress.index} of {progress.total}  {progress.name}: {progress.state}, {progress.seconds:.0f} s"

    try:
        with console.status("looking for the sandbox's programs") as status:

            def report(progress: BuildProgress) -> None:
                status.update(line(progress))
                if not console.is_terminal and (progress.name, progress.state) not in shown:
                    shown.add((progress.name, progress.state))
                    console.print(line(progress))

            for program, path in ((program, existing(program)) for program in PROGRAMS):
                if path and not path.is_relative_to(cache_folder()):
                    console.print(f"found {path}, version {version_of(program)}")
            if absent := missing():
                names = ", ".join(program.name for program in absent)
                console.print(f"building from source, {about(expected_seconds(absent))} and downloads: {names}")
            prepare(report)
            for of_tests in (ACTIONLINT, PROMTOOL):
                prepare_one(of_tests, report)
            for document in API_DOCUMENTS.values():
                prepare_copy(document, report)
            if previous:
                prepare_previous(report)
    except ProgramsError as error:
        console.print(f"[red]error:[/] {error}")
        raise typer.Exit(1) from None
    console.print(f"programs: {cache_folder()}")


if __name__ == "__main__":
    app(prog_name="python -m cli.programs")
