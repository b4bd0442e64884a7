"""The claims of this project, each with the command that repeats it: README.md."""

import argparse
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
"""The checkout."""


def positional(doc: str | None, **defaults: int | str) -> list[Any]:
    """The arguments of a command that has no options, by place; `--help` prints its `doc`."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        parser.add_argument(
            name, nargs="?", type=type(default), default=default, help=f"default: {default}"
        )
    return [*vars(parser.parse_args()).values()]
