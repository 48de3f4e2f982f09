"""A name for ``helpers`` that no other package has: its public names, and the console script.

``from attention_notebooks import Study`` is ``from helpers import Study``.  ``python -m helpers``
and ``import helpers`` take the first package of that name that Python finds.  In a folder that has
a package ``helpers`` of its own, that is the wrong one, and notebooks would import it, too.  This
module says so instead.
"""

import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent / "helpers"


def describe_clash(path: list[str]) -> str:
    """Say which other package ``helpers`` Python finds; the text is empty if it finds this one."""
    spec = PathFinder.find_spec("helpers", path)
    if spec is None:
        return ""
    # A folder without __init__.py is a package, too.
    locations = spec.submodule_search_locations or [spec.origin]
    location = Path(next(iter(locations))).resolve()
    if location == PACKAGE:
        return ""
    return (
        f"Python finds a package 'helpers' in {location} and not the one in {PACKAGE.parent}; run "
        "this from another folder, or take it out of PYTHONPATH"
    )


def main() -> int:
    """Run the command line, unless notebooks would import another package ``helpers``."""
    # The kernel of a notebook looks in the working folder first.
    clash = describe_clash([str(Path.cwd()), *sys.path])
    if clash:
        print(f"error: {clash}", file=sys.stderr)
        return 2
    from helpers.__main__ import main as run_command

    return run_command()


def __getattr__(name: str) -> Any:
    """Import a public name of ``helpers`` when it is asked for."""
    if name.startswith("_"):  # Python asks whether this module is a package
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    clash = describe_clash(sys.path)
    if clash:
        raise ImportError(clash)
    import helpers

    return getattr(helpers, name)


def __dir__() -> list[str]:
    import helpers

    return ["main", *helpers.__all__]


if __name__ == "__main__":
    sys.exit(main())
