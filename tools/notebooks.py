"""Execute the notebooks of docs/notebooks: python tools/notebooks.py [NOTEBOOK ...] [--write]

Each runs from top to bottom in an empty folder, and must print what is kept in it; --write keeps what it
prints now. Numbers that depend on the machine are masked as on pages (tools/transcript.py); pictures are
not compared.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from transcript import AS_READERS, REPOSITORY, masked

from vit_config.errors import first_line

NOTEBOOKS = REPOSITORY / "docs" / "notebooks"


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with what its cells print now.

    Raises:
        CellExecutionError: a cell that raises; the message has the cell and its traceback.
    """
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    with tempfile.TemporaryDirectory() as folder:
        _prepare(Path(folder))
        client = NotebookClient(
            notebook,
            timeout=600,
            record_timing=False,
            coalesce_streams=True,
            extra_arguments=["--IPKernelApp.log_level=40"],  # errors only
            resources={"metadata": {"path": folder}},
        )
        client.execute()
        for cell in notebook.cells:
            cell.metadata.clear()
            if "outputs" in cell:  # progress bars are for whoever runs it
                cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
                for output in cell.outputs:
                    _tidy(output, folder)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def _prepare(folder: Path) -> None:
    """`parity` on the path, this tree's packages, and `import timm` as readers write it."""
    tools = folder / ".bin"
    tools.mkdir()
    command = tools / "parity"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m parity "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    os.environ |= {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, AS_READERS))),
        "JAX_PLATFORMS": "cpu",
        "COLUMNS": "110",
        "TERM": "dumb",
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore",
    }


def _tidy(output: nbformat.NotebookNode, folder: str) -> None:
    """No paths of this machine, no colours, no trailing blanks."""
    texts = [output.data, "text/plain"] if "data" in output else [output, "text"]
    holder, key = texts
    if key in holder:
        plain = (
            re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", holder[key])
            .replace(f"{folder}/", "")
            .replace("\r\n", "\n")
        )
        holder[key] = "\n".join(line.rstrip() for line in plain.split("\n"))


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    """Return the prints of each cell, masked."""
    return [
        masked("".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in
                       cell.get("outputs", [])))
        for cell in notebook.cells
    ]  # fmt: skip


def check(path: Path, *, write: bool = False) -> str | None:
    """Execute a notebook; what is wrong with it, or None."""
    saved = nbformat.read(path, as_version=4)
    try:
        now = execute(path)
    except CellExecutionError as error:
        return str(error)
    if write:
        path.write_text(nbformat.writes(now, indent=1) + "\n", encoding="utf-8")
        return None
    for number, (before, after) in enumerate(zip(printed(saved), printed(now), strict=True)):
        if before != after:
            return f"cell {number} printed\n{after}\nbut the file has\n{before}\n--write replaces it"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(NOTEBOOKS.glob("*.ipynb")))
    parser.add_argument("--write", action="store_true", help="keep what the cells print now")
    arguments = parser.parse_args()
    if not arguments.notebooks:
        parser.error(f"no notebook in {NOTEBOOKS}")
    wrong = 0
    for path in arguments.notebooks:
        start = time.monotonic()
        problem = check(path, write=arguments.write)
        print(
            f"{path.name}: {'ok' if problem is None else 'WRONG'}, {time.monotonic() - start:.0f} s",
            flush=True,
        )
        if problem is not None:
            print(problem, flush=True)
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
