"""This code by another interpreter, with the libraries of its own environment."""

import json
import os
import subprocess
import sys

import pytest

from vit_config.other_python import FOLDER, command

pytestmark = pytest.mark.quick
PRINTS = """
import json, sys
import numpy, parity, vit_config
print(json.dumps([numpy.__file__, parity.__file__, sys.argv, sys.path.index(sys.argv[2])]))
"""


def test_the_code_is_this_and_the_libraries_are_the_interpreters_own(tmp_path):
    """Here its environment is a folder with another numpy, and with another version of this project."""
    for name in ("numpy", "parity"):
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "prints.py").write_text(PRINTS)
    done = subprocess.run(
        command("prints", "--given", FOLDER, python=sys.executable),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    numpy, parity, argv, place = json.loads(done.stdout)
    assert numpy == str(tmp_path / "numpy.py")
    assert parity == os.path.join(FOLDER, "parity", "__init__.py")
    assert argv[1:] == ["--given", FOLDER]
    assert place > 0  # what it lacks is taken from here
