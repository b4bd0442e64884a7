"""A check of training as text, as JSON, and as a picture of two curves."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parity.measure.judged import Judged
from parity.measure.tables import show_table
from parity.measure.tolerance import FLOAT64, SHADOW
from parity.twins.check_report import REDUCED
from parity.twins.steps.check_steps import StepsReport
from parity.twins.steps.train_both import TypeResult
from vit_config import ConfigError
from vit_config.files.weights_file import write_atomically
from vit_config.screen import screen

JSON_VERSION = 1
SHOWN = 8
"""Number of steps of a free run that the text shows."""
FLOOR = 1e-18
"""Value at which a distance of zero is drawn."""


def print_steps(report: StepsReport) -> None:
    """Print the steps from the same state, the free run beside its shadows, and the verdict."""
    console = screen(110)
    recipe = report.recipe
    console.print(
        f"[bold]parity check-steps {escape(report.subject)} --steps {report.steps}[/]:"
        f" {recipe.optimizer}, {recipe.schedule} schedule from {recipe.learning_rate:g};"
        f" {escape(report.data)}",
        highlight=False,
    )
    for walk in report.walks:
        show_table(_levels(walk), console)
        _print_run(report, walk, console)
    if report.fault:
        console.print(f"injected on purpose: [bold]{report.fault}[/]")
    if report.dropped:
        console.print(f"[dim]set to 0: {', '.join(report.dropped)} (each framework draws its own)[/]")
    versions = ", ".join(f"{name} {value}" for name, value in report.environment.items())
    console.print(f"[dim]seed {recipe.seed}; {escape(versions)}[/]")
    if not report.agrees:
        console.print("[bold red]DIFFERENT[/]: the twins do not train alike")
    elif report.passed:
        console.print("[bold green]EQUAL[/]: the twins train alike")
    for flag in report.uncertified:
        console.print(f"[bold yellow]UNCERTIFIED[/]: {REDUCED} - {escape(flag)}")


def _levels(walk: TypeResult) -> Table:
    table = Table(title=f"{walk.dtype}: each step from the same state", title_justify="left")
    table.add_column("level")
    table.add_column("tensors", justify="right")
    table.add_column("worst tensor", overflow="fold")
    for name in ("step", "JAX", "PyTorch", "limit"):
        table.add_column(name, justify="right")
    table.add_column("from")
    table.add_column("")
    for level, result in walk.levels.items():
        worst = result.worst
        verdict = "[green]ok[/]" if result.passed else f"[bold red]{result.failures} differ[/]"
        table.add_row(
            level,
            str(result.count),
            worst.site.path if worst.score else "-",
            str(worst.site.step),
            f"{worst.errors[0]:.1e}",
            "" if len(worst.errors) == 1 else f"{worst.errors[1]:.1e}",
            f"{worst.limit:.1e}",
            worst.origin,
            verdict,
        )
    return table


def _print_run(report: StepsReport, walk: TypeResult, console: Console) -> None:
    if walk.failed:
        first = walk.failed[0]
        console.print(
            f"[bold red]first difference[/]: {escape(in_words(first))}:"
            f" {first.error:.1e}, limit {first.limit:.1e}",
            highlight=False,
        )
    curve = walk.curves["parameters"]
    table = Table(
        title=f"{walk.dtype}: running freely, distance of the parameters", title_justify="left"
    )
    for name in ("after step", "loss", "twins", "shadows", "limit"):
        table.add_column(name, justify="right")
    for index in _shown(len(curve.twins)):
        shadows = curve.shadows[index]
        table.add_row(
            str(index + 1),
            f"{walk.losses[index]:.4f}",
            f"{curve.twins[index]:.1e}",
            f"{min(shadows):.1e} to {max(shadows):.1e}",
            f"{curve.limits[index]:.1e}",
        )
    show_table(table, console)
    for part, each in walk.curves.items():
        if each.failures:
            step = each.failures[0]
            console.print(
                f"[bold red]parted[/]: {part} at step {step}: {each.twins[step - 1]:.1e}, where shadows"
                f" explain {each.limits[step - 1]:.1e}",
                highlight=False,
            )
    console.print(report.stability(walk).sentence(), highlight=False)
    if walk.unseen:
        console.print(
            f"[dim]{walk.unseen} numbers that the loss cannot see (biases of keys: softmax ignores what"
            " all keys share) are left out of the parameters: their gradient is rounding noise, of which"
            f" Adam makes steps; here they came to differ by {walk.unseen_difference:.1e}[/]",
            highlight=False,
        )


def _shown(count: int) -> list[int]:
    """Return the indices of the first step, the last, and some between, closer at the beginning."""
    return sorted({round(each) - 1 for each in np.geomspace(1, count, min(count, SHOWN))})


def steps_to_dict(report: StepsReport) -> dict[str, Any]:
    """Convert a report to plain data; docs/training_parity.md describes every field."""
    return {
        "version": JSON_VERSION,
        "subject": report.subject,
        "passed": report.passed,
        "config": json.loads(report.config.to_json()),
        "recipe": json.loads(report.recipe.to_json()),
        "steps": report.steps,
        "steps_per_epoch": report.steps_per_epoch,
        "data": report.data,
        "dropped": list(report.dropped),
        "fault": report.fault,
        "digests": report.digests,
        "environment": report.environment,
        "uncertified": list(report.uncertified),
        "walks": [_walk_to_dict(report, walk) for walk in report.walks],
    }


def _walk_to_dict(report: StepsReport, walk: TypeResult) -> dict[str, Any]:
    stability = report.stability(walk)
    return {
        "dtype": walk.dtype,
        "passed": walk.passed,
        "levels": {
            level: {"tensors": result.count, "failures": result.failures} | _judged_to_dict(result.worst)
            for level, result in walk.levels.items()
        },
        "first_difference": _judged_to_dict(walk.failed[0]) if walk.failed else None,
        "losses": walk.losses,
        "one_step": walk.one_step,
        "curves": {
            part: {
                "twins": curve.twins,
                "shadows": curve.shadows,
                "limits": curve.limits,
                "failures": curve.failures,
            }
            for part, curve in walk.curves.items()
        },
        "stability": {
            "quiet": stability.quiet,
            "growth": stability.growth,
            "lost_at": stability.lost_at,
            "sentence": stability.sentence(),
        },
        "unseen": walk.unseen,
        "unseen_difference": walk.unseen_difference,
    }


def in_words(judged: Judged) -> str:
    """Name a tensor and its step in words."""
    site = judged.site
    return f"step {site.step}, {site.level} {site.path}"


def _judged_to_dict(judged: Judged) -> dict[str, Any]:
    return {
        "level": judged.site.level,
        "step": judged.site.step,
        "name": judged.site.path,
        "jax_error": judged.errors[0],
        "torch_error": judged.errors[-1],
        "limit": judged.limit,
        "origin": judged.origin,
    }


def draw_steps(report: StepsReport, path: Path) -> None:
    """Draw the distances of the twins and of the shadows after each step, one panel per type.

    Raises:
        ConfigError: a file type that matplotlib cannot write.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = len(report.walks)
    figure = Figure(figsize=(9, 0.6 + 3.6 * count), layout="constrained")
    kinds = FigureCanvasAgg.get_supported_filetypes()
    kind = path.suffix.lstrip(".").lower()
    if kind not in kinds:
        raise ConfigError(f"{path}: a picture ends in one of {', '.join(sorted(kinds))}")
    for axis, walk in zip(np.atleast_1d(figure.subplots(count, 1)), report.walks, strict=True):
        curve = walk.curves["parameters"]
        steps = np.arange(1, len(curve.twins) + 1)
        shadows = np.maximum(np.array(curve.shadows), FLOOR)
        for number in range(shadows.shape[1]):
            label = "Flax against its own shadow" if number == 0 else None
            axis.plot(steps, shadows[:, number], color="tab:gray", lw=1, label=label)
        axis.plot(
            steps, np.maximum(curve.twins, FLOOR), color="tab:blue", lw=2, label="Flax against PyTorch"
        )
        axis.plot(steps, curve.limits, color="tab:red", lw=1, ls="--", label=_limit_words())
        axis.set_yscale("log")
        axis.set_xlabel("training steps")
        axis.set_ylabel("distance of the parameters")
        axis.set_title(f"{report.subject}, {walk.dtype}, {report.recipe.optimizer}", loc="left")
        axis.legend(frameon=False)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=120, format=kind)
    write_atomically(path, drawn.getvalue())


def _limit_words() -> str:
    return f"limit: the larger of {FLOAT64:g} and {SHADOW:g} shadows"
