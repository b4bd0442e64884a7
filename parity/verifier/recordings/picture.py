"""A picture of the errors by depth, forward and backward, with the envelope of rounding."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from parity.verifier.recordings.difference import Difference
from parity.verifier.recordings.judge import StageComparison
from vit_config import ConfigError
from vit_config.files.atomic import write_atomically

FLOOR = 1e-18
"""Height at which an error of zero is drawn: below the epsilon of float64, 2e-16, by two decades."""


def check_kind(path: Path) -> None:
    """Refuse a path whose suffix is that of no kind of picture. ConfigError: with the kinds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    kinds = FigureCanvasAgg.get_supported_filetypes()
    if path.suffix.lstrip(".").lower() not in kinds:
        raise ConfigError(f"{path}: a picture ends in one of {', '.join(sorted(kinds))}")


def draw(difference: Difference, path: Path) -> None:
    """Draw one panel per direction, with each tensor in the order of computation.

    Raises:
        ConfigError: matplotlib cannot write this file type.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.5), layout="constrained")
    check_kind(path)
    axes = figure.subplots(2, 1)
    for axis, stage in zip(axes, ("forward", "backward"), strict=True):
        comparisons = [each for each in difference.comparisons if each.stage == stage and each.judged]
        axis.set_title(
            f"{stage}: relative error of each tensor, in the order of computation", loc="left"
        )
        axis.set_yscale("log")
        if comparisons:
            _draw(axis, comparisons[0])
            axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
            _name_blocks(axis, comparisons[0])
    figure.suptitle(f"{difference.name_a} (A) against {difference.name_b} (B)")
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=120, format=path.suffix.lstrip("."))
    write_atomically(path, drawn.getvalue())


def _draw(axis, each: StageComparison) -> None:
    errors = np.maximum([judged.error for judged in each.judged], FLOOR)
    places = np.arange(len(errors))
    axis.plot(places, errors, ".", color="tab:blue", label="error")
    limits = np.maximum([judged.limit for judged in each.judged], FLOOR)
    axis.plot(places, limits, "-", color="tab:blue", alpha=0.5, lw=1, label="what rounding explains")
    failed = [i for i, judged in enumerate(each.judged) if not judged.passed]
    axis.plot(failed, errors[failed], "o", mfc="none", color="tab:red", ms=6)


def _name_blocks(axis, each: StageComparison) -> None:
    """Set a tick where the first two parts of the path change, as they do where a block begins."""
    names = [".".join(judged.site.path.split(".")[:2]) for judged in each.judged]
    starts = [i for i, name in enumerate(names) if i == 0 or name != names[i - 1]]
    every = max(1, len(starts) // 30)
    axis.set_xticks(
        starts[::every], [names[i] or "(model)" for i in starts[::every]], rotation=60, ha="right"
    )
    axis.tick_params(axis="x", labelsize=7)
