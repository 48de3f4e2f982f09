"""Take over the executed notebooks of the default run as the committed ones: ``make notebooks``.

A run with default settings executes the notebooks as they are.  Here its copies lose what differs
between machines: times, progress bars and the state of live widgets.
"""

import sys
from pathlib import Path

import nbformat

from helpers.errors import InputError
from helpers.results import Results, made_by, run_record
from helpers.run import is_later, list_notebooks
from helpers.settings import make_settings

LIVE_WIDGET = "application/vnd.jupyter.widget-view+json"  # its text/html needs no kernel
KEPT_METADATA = ("tags", "jupyter")  # of a cell; "jupyter" says that it is folded


def main() -> None:
    """Take over each notebook whose executed copy is of today's code."""
    for path in list_notebooks():
        results = Results(make_settings(), later=is_later(path))
        record = run_record(results.build)
        if record.get("code") != made_by()["code"] or path.stem not in record["seconds"]:
            print(f"{path.name}: not executed with this code; 'make run' does it", file=sys.stderr)
            continue
        take_over(results.build / path.name, path)


def take_over(executed: Path, target: Path) -> None:
    """Write the cells of an executed notebook without what differs between machines."""
    notebook = nbformat.read(executed, as_version=4)
    source = nbformat.read(target, as_version=4)
    if [cell.source for cell in notebook.cells] != [cell.source for cell in source.cells]:
        raise InputError(f"{executed}: its cells are not those of {target}; run it again")
    notebook.metadata = source.metadata
    count = 0
    for cell in notebook.cells:
        metadata = cell.metadata
        cell.metadata = {key: metadata[key] for key in KEPT_METADATA if metadata.get(key)}
        if cell.cell_type == "code":
            count += 1  # the cell that is gone was counted
            cell.execution_count = count
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = count
                output.get("data", {}).pop(LIVE_WIDGET, None)
    nbformat.write(notebook, target)


if __name__ == "__main__":
    main()
