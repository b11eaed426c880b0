"""`make test`: every test, and those without a sandbox beside those with one.

The chain mostly waits for others: pods that start, leases that end. In these gaps the rest runs, at the lowest priority
so that it slows no step. Its output follows that of the chain.
"""

import subprocess
import sys
import tempfile

SANDBOX = ("tests/chain", "tests/sandbox")
_LOWEST = 19
_PYTEST = (sys.executable, "-m", "pytest")


def main() -> int:
    """Run all tests; exit status 1 if any fails."""
    beside = ("nice", "-n", str(_LOWEST), *_PYTEST, *(f"--ignore={folder}" for folder in SANDBOX))
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(beside, stdout=said, stderr=subprocess.STDOUT) as rest,
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
