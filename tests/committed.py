"""The committed results, whatever a rerun has written into the working tree."""

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@cache
def committed_figures() -> Path:
    """Return a copy of ``figures/`` as git has it; without a repository, the folder itself.

    The index is read, so that tables which are about to be committed are tested before they are.
    """
    try:
        command = ["git", "ls-files", "-z", "figures"]
        names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        names = b""
    if not names:
        return ROOT / "figures"
    folder = tempfile.mkdtemp(prefix="committed-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = ["git", "checkout-index", "-z", "--stdin", f"--prefix={folder}/"]
    subprocess.run(command, cwd=ROOT, input=names, check=True)
    return Path(folder) / "figures"
