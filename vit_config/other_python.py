"""Commands that run this project's modules by an interpreter that need not have it installed."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGES = ("evidence", "parity", "vit_config", "vit_jax", "vit_torch", "vit_train")
FOLDER = str(Path(__file__).parents[1])
"""The folder of these packages: a clone, or the site-packages of this interpreter's environment."""
_START = """
import runpy, sys
from importlib.machinery import PathFinder

class Finder:
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [{folder!r}]) if name in {packages!r} else None

sys.meta_path.insert(0, Finder)
if sys.version_info[:2] == {version!r}:
    sys.path.append({folder!r})
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def command(module: str, *arguments: str, python: str | Path | None = None) -> list[str]:
    """Return the command that runs a module with this very code.

    The interpreter takes only the packages of this project from here. All other libraries are those of
    its own environment, whose Python may be of another version; those that it lacks come from this
    environment if the two versions are the same.

    Args:
        python: the interpreter; this one by default.
    """
    start = _START.format(folder=FOLDER, packages=PACKAGES, version=sys.version_info[:2])
    return [str(python or sys.executable), "-c", start, module, *arguments]
