"""The run of `make demo` learns to read digits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from parity.porting.models.trained import IMAGES, WEIGHTS
from vit_jax.evaluate import evaluate_file

ROOT = Path(__file__).parents[2]


@pytest.mark.exhaustive  # make demo is the same run
@pytest.mark.timeout(300)
def test_the_default_run_reads_digits(tmp_path):
    command = [sys.executable, "train.py", "--run-dir", str(tmp_path / "run")]
    command += ["--data-dir", str(tmp_path / "data")]
    usual = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(command, cwd=ROOT, env=usual, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert evaluate_file(tmp_path / "run" / WEIGHTS, tmp_path / "run" / IMAGES).accuracy >= 0.94
