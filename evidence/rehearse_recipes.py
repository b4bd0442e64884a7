"""Every recipe shipped, built and stepped twice on random images by ``train.py --dry-run``.

    python -m evidence.rehearse_recipes [IMAGES]

prints a table of what each said in a process of its own; IMAGES (default 4) are in a batch, for the
recipes' own of up to 2048 do not fit on a laptop. Exits 1 if one failed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from evidence import ROOT, positional

HEAD = """\
| recipe | in | parameters | FLOPs an image | state | process | steps in all | step of {images} images |
|---|---|---|---|---|---|---|---|"""
FOUND = {
    "parameters": r"model   ([\d,]+) parameters",
    "flops": r"FLOPs ([\d.e+-]+ \w+) forward",
    "state": r"memory  ([\d,.]+ MiB)",
    "process": r"peaked at ([\d,]+ MiB)",
    "steps": r"steps   ([\d,]+):",
    "seconds": r"speed   ([\d.e-]+ s) a step",
}


def rehearse(path: Path, framework: str, images: int) -> str:
    """A row of the table.

    Raises:
        RuntimeError: the recipe cannot be run; its last line says why.
    """
    command = ["train.py", "--config", str(path), "--framework", framework]
    command += ["--dry-run", "--dry-run-batch", str(images)]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
    matches = {name: re.search(pattern, done.stdout) for name, pattern in FOUND.items()}
    if done.returncode or not all(matches.values()):
        raise RuntimeError(f"{path.name}: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    cells = [path.stem, framework, *(match[1] for match in matches.values() if match)]
    return f"| {' | '.join(cells)} |"


def table(images: int) -> Iterator[str]:
    """The lines of the table."""
    yield HEAD.format(images=images)
    for path in sorted((ROOT / "recipes").glob("*.toml")):
        for framework in ("jax", "torch"):
            yield rehearse(path, framework, images)


if __name__ == "__main__":
    for line in table(*positional(__doc__, images=4)):
        print(line, flush=True)
