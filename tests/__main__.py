"""`make test`: every test, and those without a sandbox beside those with one.

The chain often waits for others: pods that start, leases that end. In these gaps the rest runs, and with the cores it
stands back as a pod of the sandbox does. Its output follows that of the chain.
"""

import subprocess
import sys
import tempfile

from sandbox.node_agent.launch import NICE

SANDBOX = ("tests/chain", "tests/sandbox")
_BESIDE = ("sh", "-c", f'echo {NICE} > /proc/self/autogroup; exec nice -n {NICE} "$@"', "sh")
"""In a session of its own: between sessions, Linux may share out cores by the first of the two alone (sched(7)). As low
as pods of the sandbox: any lower, and whoever waits for an answer there would give up."""
_PYTEST = (sys.executable, "-m", "pytest")


def main() -> int:
    """Run all tests; exit status 1 if any fails."""
    beside = (*_BESIDE, *_PYTEST, *(f"--ignore={folder}" for folder in SANDBOX))
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(beside, stdout=said, stderr=subprocess.STDOUT, start_new_session=True) as rest,
    ):
        try:
            chain = subprocess.run((*_PYTEST, *SANDBOX), check=False).returncode
            failed = rest.wait() != 0 or chain != 0
        except KeyboardInterrupt:
            rest.terminate()
            raise
        said.seek(0)
        sys.stdout.write(said.read())
    print("failed" if failed else "passed")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
