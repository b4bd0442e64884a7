"""Runs an exported program in its own process, which cannot import this project."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parity.exporting.formats import Format, here
from vit_config import WeightsError

_BEFORE = """
import sys
path, pictures, outputs, *without = sys.argv[1:]
for name in without:
    sys.modules[name] = None  # from here on `import` of it fails
import warnings
warnings.simplefilter("ignore")
import numpy
"""
_AFTER = """
given, results = numpy.load(pictures), {}
for key in given.files:
    for name, value in run(given[key]).items():
        results[f"{key}/{name}"] = numpy.asarray(value)
numpy.savez(outputs, **results)
"""


def replay(form: Format, path: Path, batches: Sequence[np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Run an exported program on each batch of images, and return its outputs by name.

    Raises:
        WeightsError: its library cannot read or run it; the message ends with the library's own.
    """
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        pictures, outputs = Path(folder, "pictures.npz"), Path(folder, "outputs.npz")
        named: dict[str, Any] = {str(number): batch for number, batch in enumerate(batches)}
        np.savez(pictures, **named)
        program = _BEFORE + form.reader + _AFTER
        done = subprocess.run(
            [sys.executable, "-c", program, path, pictures, outputs, *form.without],
            env={**os.environ, "JAX_PLATFORMS": here(), "JAX_TRACEBACK_FILTERING": "off"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = (done.stderr.strip() or "no message").splitlines()[-1]
            raise WeightsError(f"{form.name}: written, but what reads it cannot run it ({reason})")
        with np.load(outputs) as file:
            results = {key: file[key] for key in file.files}
    return [
        {key.partition("/")[2]: value for key, value in results.items() if key.startswith(f"{number}/")}
        for number in range(len(batches))
    ]
