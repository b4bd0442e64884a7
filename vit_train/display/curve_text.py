"""A curve at the terminal, of letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

WIDTH, HEIGHT = 60, 8
"""Columns and rows of the curve; a row has eight levels."""
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def loss_curve(events: Sequence[dict[str, Any]]) -> list[str]:
    """Draw the training loss of a run's log; no lines where it has fewer than two events of training."""
    train = [event for event in events if event["kind"] == "train"]
    if len(train) < 2:
        return []
    steps = [event["step"] for event in train]
    rows = draw([event["loss"] for event in train])
    ends = f"step {steps[0]:,}", f"{steps[-1]:,}"
    margin = len(rows[0]) - min(len(train), WIDTH)
    width = max(min(len(train), WIDTH), sum(map(len, ends)) + 1)
    return ["loss in training", *rows, " " * margin + ends[0] + ends[1].rjust(width - len(ends[0]))]


def draw(values: Sequence[float]) -> list[str]:
    """Draw numbers as columns of letters, the highest and the lowest written beside them.

    More numbers than columns are averaged, neighbour by neighbour.
    """
    parts = np.array_split(np.asarray(values, np.float64), min(len(values), WIDTH))
    means = np.array([part.mean() for part in parts])
    low, high = means.min(), means.max()
    levels = np.rint((means - low) / (high - low or 1.0) * (8 * HEIGHT - 1)).astype(int) + 1
    labels = {HEIGHT - 1: f"{high:.4g}", 0: f"{low:.4g}"}
    margin = max(map(len, labels.values()))
    return [
        f"{labels.get(row, ''):>{margin}} "
        + "".join(_EIGHTHS[min(max(level - 8 * row, 0), 8)] for level in levels).rstrip()
        for row in reversed(range(HEIGHT))
    ]
