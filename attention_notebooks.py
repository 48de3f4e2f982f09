"""The console script ``attention-notebooks``: the command line of this project's ``helpers``.

``python -m helpers`` runs the first package of that name that Python finds.  In a folder that has a
package ``helpers`` of its own, that is the wrong one, and notebooks would import it, too.  This
script says so instead.
"""

import sys
from importlib.machinery import PathFinder
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent / "helpers"


def main() -> int:
    """Run the command line, unless notebooks would import another package ``helpers``."""
    # The kernel of a notebook looks in the working folder first.
    spec = PathFinder.find_spec("helpers", [str(Path.cwd()), *sys.path])
    if spec is not None:
        # A folder without __init__.py is a package, too.
        locations = spec.submodule_search_locations or [spec.origin]
        location = Path(next(iter(locations))).resolve()
        if location != PACKAGE:
            print(
                f"error: Python finds a package 'helpers' in {location} and not the one in "
                f"{PACKAGE.parent}; run this from another folder, or take it out of PYTHONPATH",
                file=sys.stderr,
            )
            return 2
    from helpers.__main__ import main as run_command

    return run_command()


if __name__ == "__main__":
    sys.exit(main())
