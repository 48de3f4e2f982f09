"""Write the book, a site of static pages, into build/book: ``make book``.

The pages are those of book/, the README files of the package, and the notebooks as they are
committed.  They are copied to build/book-source, where Sphinx reads them and stops at a link that
leads nowhere.  Reports of the committed runs and viewers of a few sentences are added.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import nbformat

from helpers.run import execute_all, page_job

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "build" / "book-source"
BOOK = ROOT / "build" / "book"
# Pages outside book/, and their names in the book.
PAGES = {
    "README.md": "index.md",  # for links only: the book has a first page of its own
    "figures/README.md": "findings.md",
    "helpers/README.md": "package.md",
    "helpers/data/README.md": "corpora.md",
    "helpers/model/README.md": "models.md",
    "helpers/store/README.md": "clusters.md",
    "SAFETY.md": "safety.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
# A block of code, in which nothing is a link, or a link or picture: its mark, text and target.
LINK = re.compile(
    r"^```.*?^```|(!?)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s]+)\)", re.MULTILINE | re.DOTALL
)
VIEWERS_PLACE = re.compile(r"<!-- viewers -->.*?<!-- end -->\n", re.DOTALL)
ON_GITHUB = re.compile(r"github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?$")
COLAB = """

[Open this notebook in Colab](https://colab.research.google.com/github/{repository}/blob/HEAD/notebooks/{name}).
There, run `!pip install git+https://github.com/{repository}` in a cell of its own first.
"""
LAST_ON_COLAB = "06"  # the later ones need more than a free machine gives
# The sentences of the viewers: a few lines with the relations that the findings speak of.
SENTENCES = (
    "The committee that reviewed the proposals rejected my plan.",
    "My sister bought a red bicycle, but her neighbour never saw it.",
    "The keys to the old cabinet are on the table.",
    "After the storm, the crew of the ship was rescued by fishermen.",
)
VIEWERS = {
    "objects": {"layer": 3, "head": 1, "relation": "dobj"},
    "previous": {"layer": 1, "head": 3},
    "sink": {"layer": 4, "head": 5},
}
VIEWERS_BLOCK = """\
<iframe class="viewer" title="Attention viewer" src="viewers/all.html"></iframe>

Each of these pages has one sentence, about 90 KB, and works without a network:

- <a href="viewers/objects.html">head 3-1: direct objects attend to their verbs</a>
- <a href="viewers/previous.html">head 1-3: each word attends to the word before it</a>
- <a href="viewers/sink.html">head 4-5: most words attend to [CLS]</a>
"""
API = {
    "metrics": "Sections 3, 4 and 6 of the paper: functions from maps and records to tables.",
    "probes": "Section 5 of the paper: the probing classifiers and Table 3.",
    "plots": "Functions from tables to matplotlib figures.",
}


def main() -> None:
    """Prepare the sources, and run Sphinx over them."""
    from sphinx.cmd.build import build_main  # late: tests import this module without Sphinx

    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quick", action="store_true", help="without the reports of runs")
    arguments = options.parse_args()
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.rmtree(BOOK, ignore_errors=True)
    shutil.copytree(ROOT / "book", SOURCE)
    copy_pages()
    write_api()
    copy_notebooks()
    write_runs()
    if not arguments.quick:
        write_reports()
    write_viewers()
    sys.path.insert(0, str(ROOT))
    from scripts.browser_page import add_to_book  # late: it imports torch

    add_to_book(SOURCE)
    # In this process, which has imported most of what the pages of functions are about.
    doctrees = ROOT / "build" / "book-doctrees"
    flags = ["-W", "--keep-going", "-q", "-d", doctrees, SOURCE, BOOK]
    status = build_main([str(flag) for flag in flags])
    if status:
        sys.exit(status)
    print(f"{len(list(BOOK.rglob('*.html')))} pages: {BOOK.relative_to(ROOT)}/index.html")


def copy_pages() -> None:
    """Copy the pages of book/ and those outside it, with links from the book's folder."""
    for path in (ROOT / "book").glob("*.md"):
        text = path.read_text(encoding="utf-8")
        text = VIEWERS_PLACE.sub(VIEWERS_BLOCK, text)
        (SOURCE / path.name).write_text(relinked(text, path.parent), encoding="utf-8")
    for name, target in PAGES.items():
        if name != "README.md":
            text = (ROOT / name).read_text(encoding="utf-8")
            text = relinked(text, (ROOT / name).parent)
            (SOURCE / target).write_text(text, encoding="utf-8")


def write_api() -> None:
    """Write a page for each subpackage that `helpers` exports, with its functions."""
    for name, summary in API.items():
        lines = [f"# helpers.{name}", "", summary, ""]
        for _, module, _ in iter_modules(import_module(f"helpers.{name}").__path__):
            lines += [f"## {module}", "", "```{eval-rst}"]
            lines += [f".. automodule:: helpers.{name}.{module}", "   :members:"]
            # The function sem is scipy's, which hides where it is from.
            lines += ["   :exclude-members: sem", "```", ""]
        (SOURCE / f"api-{name}.md").write_text("\n".join(lines), encoding="utf-8")


def copy_notebooks() -> None:
    """Copy the notebooks, with their settings folded."""
    folder = SOURCE / "notebooks"
    folder.mkdir()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        notebook.metadata.pop("widgets", None)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = relinked(cell.source, path.parent, "../")
            elif cell.metadata.get("jupyter", {}).get("source_hidden"):
                cell.metadata.tags = [*cell.metadata.get("tags", []), "hide-input"]
                cell.metadata.mystnb = {"code_prompt_show": "Settings", "code_prompt_hide": "Fold"}
        notebook.cells[0].source += colab_link(path.name, repository())
        nbformat.write(notebook, folder / path.name)


def repository() -> str:
    """Name the repository on GitHub, owner/name, by the workflow or the git remote; "" for none."""
    if "GITHUB_REPOSITORY" in os.environ:
        return os.environ["GITHUB_REPOSITORY"]
    command = ["git", "remote", "get-url", "origin"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return repository_of(done.stdout)


def repository_of(remote: str) -> str:
    """Read owner/name from the address of a git remote; "" if it is not on GitHub."""
    match = ON_GITHUB.search(remote.strip())
    return match[1] if match else ""


def colab_link(name: str, on_github: str) -> str:
    """Write the link that opens a notebook on the paper in Colab; "" without a repository."""
    if not on_github or name[:2] > LAST_ON_COLAB:
        return ""
    return COLAB.format(repository=on_github, name=name)


def relinked(text: str, folder: Path, up: str = "") -> str:
    """Change the relative links of a page in a folder of the repository into those of the book.

    A file that is not in the book is linked in the `repository`, if there is one; otherwise the
    text of the link stays.
    """
    on_github = repository()

    def changed(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        if target is None or re.match(r"https?:|mailto:|#", target):
            return match[0]
        name, mark, anchor = target.partition("#")
        path = (folder / name).resolve()
        if image:
            copy = SOURCE / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
            return f"![{label}]({up}{path.relative_to(ROOT).as_posix()})"
        page = page_in_book(path)
        if page:
            mark, anchor = ("", "") if page == "index.md" else (mark, anchor)
            return f"[{label}]({up}{page}{mark}{anchor})"
        if not on_github:
            return label
        file = path.relative_to(ROOT).as_posix()
        return f"[{label}](https://github.com/{on_github}/blob/HEAD/{file})"

    return LINK.sub(changed, text)


def page_in_book(path: Path) -> str:
    """Find the page of the book that a file or folder of the repository becomes; "" for none."""
    inside = path.relative_to(ROOT)
    if inside.as_posix() in PAGES:
        return PAGES[inside.as_posix()]
    if inside.parts[0] == "book" and path.suffix == ".md":
        return path.name
    if path.suffix == ".ipynb":
        return inside.as_posix()
    if path == ROOT / "notebooks":
        return "notebooks.md"
    if path.parent == ROOT / "figures" and (path / "run.json").is_file():
        return f"runs/{path.name}.md"
    return ""


def write_reports() -> None:
    """Write the report of each run, which is a page of its own, with its pictures in it."""
    for record in sorted((ROOT / "figures").glob("*/run.json")):
        copy = SOURCE / "extra" / "reports" / record.parent.name
        shutil.copytree(record.parent, copy)
        execute_all([[page_job("report", copy / "index", run=str(copy))]])
        for path in copy.iterdir():
            if path.suffix in (".png", ".svg", ".ipynb"):
                path.unlink()


def write_runs() -> None:
    """Write a page for each committed run: what figures/README.md says of it, and its report."""
    pages = SOURCE / "runs"
    pages.mkdir()
    text = (ROOT / "figures" / "README.md").read_text(encoding="utf-8")
    for name, description in re.findall(r"^- \[([\w-]+)\]\(\1\): (.+)$", text, re.MULTILINE):
        link = f'<a href="../reports/{name}/index.html"><strong>The report of this run</strong></a>'
        sentence = f"{description[:1].upper()}{description[1:]}."
        lines = [f"# {name}", "", LINK.sub(r"\2", sentence), "", link]
        (pages / f"{name}.md").write_text("\n".join(lines), encoding="utf-8")


def write_viewers() -> None:
    """Write viewers of a few sentences, as the bundled model sees them."""
    from helpers import read, view

    folder = SOURCE / "extra" / "viewers"
    folder.mkdir(parents=True)
    store = read(SENTENCES, level="word")
    for name, head in VIEWERS.items():
        view(store, **head).save(folder / f"{name}.html")
    chosen = view(store, **VIEWERS["objects"])
    chosen.save(folder / "all.html", range(len(store)))


if __name__ == "__main__":
    main()
