"""Copies of the checkout, in which tests change, build or run something."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def copy_checkout(target: Path) -> None:
    """Copy all files that git tracks or does not ignore, as they are now, with their times."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in names:
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
