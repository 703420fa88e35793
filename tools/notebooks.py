"""Run notebooks from their first cell to their last and store their outputs: python tools/notebooks.py [FILE ...]

Each runs in an empty directory, as a reader's would, beside a link to docs/. What is stored has no times, no machine's
paths, and nothing that was written to standard error.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def execute(notebook: nbformat.NotebookNode) -> None:
    """Run a notebook's cells in an empty directory that looks like its own."""
    with tempfile.TemporaryDirectory() as root:
        (Path(root) / "docs").symlink_to(NOTEBOOKS.parent / "docs")
        place = Path(root) / NOTEBOOKS.name
        place.mkdir()
        resources = {"metadata": {"path": str(place)}}
        nbclient.NotebookClient(
            notebook, timeout=1200, kernel_name="python3", resources=resources, coalesce_streams=True
        ).execute()


def clean(notebook: nbformat.NotebookNode) -> None:
    """Remove what differs from one execution to the next and says nothing to a reader."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]


def main(paths: list[Path]) -> None:
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        execute(notebook)
        clean(notebook)
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb")))
