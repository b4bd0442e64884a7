"""Exported programs run in the process of a test: one that cannot import this project takes seconds."""

import warnings
from typing import Any

import numpy as np
import pytest

from parity.exporting import checks


@pytest.fixture
def replayed_here(monkeypatch):
    """`parity.export` compares what runs here; one case of each format has a process of its own."""

    def replay(form, path, batches):
        names: dict[str, Any] = {"path": str(path)}
        with warnings.catch_warnings(action="ignore"):
            exec(form.reader, names)
            results = [names["run"](batch) for batch in batches]
        return [{name: np.asarray(each) for name, each in outputs.items()} for outputs in results]

    monkeypatch.setattr(checks, "replay", replay)
