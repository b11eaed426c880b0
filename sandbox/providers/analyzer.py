"""Runs a policy pack in this Python, as Pulumi's language plugin does on a user's machine.

The engine passes on the options of the pack's `PulumiPolicy.yaml`, which name another environment.
"""

import os
import sys


def _run() -> None:
    places = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    # Unbuffered: the pack prints its port and goes on.
    os.execv(sys.executable, [sys.executable, "-u", "-m", "pulumi.policy", *places])


if __name__ == "__main__":
    _run()
