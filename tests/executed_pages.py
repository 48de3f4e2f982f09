"""Pages of beyond/pages, executed in this process."""

import json
from pathlib import Path

import nbformat

PAGES = Path(__file__).parents[1] / "beyond" / "pages"


def execute(page, **parameters):
    """Execute the cells of a page with parameters, as a run does in a kernel."""
    names = {}
    for cell in nbformat.read(PAGES / f"{page}.ipynb", as_version=4).cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, page, "exec"), names)
        if "parameters" in cell.metadata.get("tags", []):
            names.update(parameters)


def write_run(folder, tables, settings):
    """Write the folder of a finished run."""
    (folder / "tables").mkdir(parents=True)
    for name, table in tables.items():
        table.to_csv(folder / "tables" / f"{name}.csv", index=False)
    record = {"settings": settings, "tables": dict.fromkeys(tables, "04")}
    (folder / "run.json").write_text(json.dumps(record))
    return folder
