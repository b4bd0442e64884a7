"""The lowest version of each dependency in pyproject.toml, as constraints: python lowest.py EXTRA ..."""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent.parent / "pyproject.toml"


def lowest(requirements: list[str]) -> list[str]:
    """``name>=1.2,<2`` as ``name==1.2``."""
    found = (re.match(r"([\w.-]+)>=([\w.]+)", requirement) for requirement in requirements)
    return [f"{match[1]}=={match[2]}" for match in found if match]


if __name__ == "__main__":
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *(each for extra in sys.argv[1:] for each in extras[extra])]
    print("\n".join(lowest(asked)))
