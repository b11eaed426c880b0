"""`make programs`: find or build the Go programs, with a line of progress."""

import argparse
import sys

from sandbox.builds import BuildProgress, prepare, prepare_copy, prepare_one, prepare_previous
from sandbox.programs import ACTIONLINT, API_DOCUMENTS, PROMTOOL, ProgramsError, cache_folder
from workloads.terminal import Terminal


def main() -> int:
    """Exit status 0 when every program is there."""
    parser = argparse.ArgumentParser(prog="python -m cli.programs", description="Build the sandbox's programs.")
    parser.add_argument(
        "--previous", action="store_true", help="also JobSet and Kueue of the minor before, for upgrades"
    )
    previous = parser.parse_args().previous
    console = Terminal()
    told: set[tuple[str, str]] = set()

    def line(progress: BuildProgress) -> str:
        return f"{progress.index} of {progress.total}  {progress.name}: {progress.state}, {progress.seconds:.0f} s"

    try:
        with console.status("looking for the sandbox's programs") as status:

            def report(progress: BuildProgress) -> None:
                status.update(line(progress))
                if not console.is_terminal and (progress.name, progress.state) not in told:
                    told.add((progress.name, progress.state))
                    console.print(line(progress))

            prepare(report)
            for of_tests in (ACTIONLINT, PROMTOOL):
                prepare_one(of_tests, report)
            for document in API_DOCUMENTS.values():
                prepare_copy(document, report)
            if previous:
                prepare_previous(report)
    except ProgramsError as error:
        console.print(f"[red]error:[/] {error}")
        return 1
    console.print(f"programs: {cache_folder()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
