"""Pages of beyond/pages, executed and converted as a run does."""

import json
from pathlib import Path

import nbformat
import papermill
from nbconvert import HTMLExporter

PAGES = Path(__file__).parents[1] / "beyond" / "pages"


def write_html(notebook, path):
    """Convert an executed page as a run does."""
    exporter = HTMLExporter(template_name="lab", exclude_input=True)
    exporter.raw_template = (PAGES / "page.html.j2").read_text(encoding="utf-8")
    body, _ = exporter.from_notebook_node(notebook)
    path.write_text(body, encoding="utf-8")
    return path


def execute(page, path, **parameters):
    """Execute a page, and convert it."""
    executed = path.with_suffix(".ipynb")
    papermill.execute_notebook(
        PAGES / f"{page}.ipynb", executed, parameters=parameters, progress_bar=False
    )
    return write_html(nbformat.read(executed, as_version=4), path)


def write_run(folder, tables, settings):
    """Write the folder of a finished run."""
    (folder / "tables").mkdir(parents=True)
    for name, table in tables.items():
        table.to_csv(folder / "tables" / f"{name}.csv", index=False)
    record = {"settings": settings, "tables": dict.fromkeys(tables, "04")}
    (folder / "run.json").write_text(json.dumps(record))
    return folder
