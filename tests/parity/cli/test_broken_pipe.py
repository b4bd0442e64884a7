"""Behind ``| head`` a command ends without a word, and with another status than models that differ."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("command", [["parity", "inspect", "digits"], ["parity", "list"]], ids=str)
def test_nobody_reads(command):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", *command], stdout=write, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")
