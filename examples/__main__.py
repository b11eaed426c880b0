"""`python -m examples NAME --stack dev --slices trillium`: one of the examples on the slices of a stack."""

import argparse
from pathlib import Path

import multislice
from examples import rules

NAMES = ("same_order", "local_data", "last_batch", "leader_result", "keras_data_parallel", "checkpoints", "one_process")


def main() -> None:
    """Call the example and print what it returns."""
    parser = argparse.ArgumentParser(prog="python -m examples", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--stack", required=True, help="one that is up")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--slices", help="one of its slice groups")
    where.add_argument("--accelerator", help="Google's name of the slices of a group, such as v6e-16")
    parser.add_argument("--count", type=int, default=1, help="slices of the group (%(default)s)")
    parser.add_argument("--backend", choices=("direct", "pathways", "auto"), default="direct", help="(%(default)s)")
    parser.add_argument("--sandbox", type=Path, help="folder of the sandbox that has the stack")
    asked = parser.parse_args()
    on_slices = multislice.run(
        asked.stack,
        asked.slices,
        accelerator=asked.accelerator,
        count=asked.count,
        backend=asked.backend,
        sandbox=asked.sandbox,
        ships=[Path(__file__).parent],
        max_hours=1,
    )
    print(on_slices(getattr(rules, asked.name))())


if __name__ == "__main__":
    main()
