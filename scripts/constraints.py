"""Write constraints.txt: exact versions of what the packages of two files bring with them.

``make constraints`` runs this after an upgrade in requirements.txt or requirements-dev.txt.
"""

from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
GPU_PACKAGES = ("cuda-", "nvidia-", "triton")  # of torch's builds for GPUs
HEADER = """\
# Exact versions of what the packages of requirements.txt and requirements-dev.txt bring with them,
# on Linux and without the GPU packages of torch; `make constraints` writes this file.
"""


def direct_requirements(name: str) -> list[Requirement]:
    """Read the packages that a file of requirements names."""
    text = (ROOT / name).read_text()
    lines = [line.partition(" #")[0] for line in text.splitlines()]
    return [Requirement(line) for line in lines if line and line[0] not in "#-"]


def installed_versions(requirements: list[Requirement]) -> dict[str, str]:
    """Collect the installed versions of these packages and of all that they need, by name."""
    versions = {}
    visited = set()
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in visited or name.startswith(GPU_PACKAGES):
                continue
            visited.add((name, extra))
            package = distribution(name)  # an error names a package that is not installed
            versions[name] = package.version.partition("+")[0]  # torch 2.13.0+cpu
            for need in map(Requirement, package.requires or []):
                if need.marker is None or need.marker.evaluate({"extra": extra}):
                    waiting.append(need)
    return versions


def main() -> None:
    """Write constraints.txt."""
    runs, tools = map(direct_requirements, ("requirements.txt", "requirements-dev.txt"))
    brought_by_runs = installed_versions(runs)
    versions = installed_versions(runs + tools)
    # Some tools, such as fonttools, come with requirements.txt alone and need their version there.
    direct = {canonicalize_name(requirement.name) for requirement in runs}
    direct |= {canonicalize_name(tool.name) for tool in tools} - brought_by_runs.keys()
    for name in direct:
        del versions[name]
    lines = [f"{name}=={version}\n" for name, version in sorted(versions.items())]
    (ROOT / "constraints.txt").write_text(HEADER + "".join(lines))


if __name__ == "__main__":
    main()
