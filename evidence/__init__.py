"""The claims of this project, each with the command that repeats it: README.md."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The checkout."""
