"""``parity train``: train one twin, export the weights, score them in both, and compare."""

from __future__ import annotations

import shlex
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from parity.cli.support.train_options import Request, parse
from parity.measure.shown import screen
from vit_config.scoring import Score

if TYPE_CHECKING:
    from vit_train.conduct import Trained

CHECKED_IMAGES = 16
"""Test images in the batch on which the twins are compared."""


def main(argv: list[str], prog: str = "parity train") -> int:
    """Run the command, which the user calls `prog`.

    Returns:
        0; 1 if the twins differ; 130 if the run was interrupted.
    """
    request = parse(argv, prog=prog)
    job, run_dir = request.job, request.run_dir
    console = screen()
    say = partial(console.print, highlight=False, soft_wrap=True, markup=False)
    say(f"run folder {run_dir}")
    trained = _train(request, console)
    if trained.test is None:
        enough = request.stop_after is not None and trained.step >= request.stop_after
        again = shlex.join(_without_stop(argv) if enough else argv)
        asked = ", as asked" if enough else ""
        say(f"stopped after step {trained.step}{asked}; to continue: {prog} {again}".rstrip())
        return 0 if enough else 130

    from parity.cli.plot import draw_curves
    from parity.porting.export import IMAGES, WEIGHTS, export, score_in_torch, write_images
    from vit_jax.evaluate import evaluate_file
    from vit_train.conduct import NAMES

    weights, images = run_dir / WEIGHTS, run_dir / IMAGES
    export(weights, job.model, trained.params, trained.preprocess, framework=request.framework)
    raw = write_images(images, trained.dataset.test, job.model, trained.preprocess)
    if len(raw) < trained.test.count:
        say(f"{images} has {len(raw)} of the {trained.test.count} test images, evenly spread, for size")
    scores = {
        f"{NAMES[request.framework]}, at the end of training, {job.recipe.dtype}": trained.test,
        "JAX, from the weights file": evaluate_file(weights, images),
    }
    say(f"weights {weights}, curves {draw_curves(run_dir)}")
    if find_spec("torch") is None:
        console.print(score_table(scores))
        say(
            f"PyTorch is not installed: score {weights} elsewhere with"
            f" `python -m vit_torch.evaluate {shlex.join([str(weights), str(images)])}`"
        )
        return 0

    from parity.twins.check import check_weights
    from parity.twins.check_report import print_report

    try:
        port = "PyTorch, from the weights file, in a process without JAX"
        scores[port] = score_in_torch(weights, images)
    finally:  # whatever PyTorch does, what JAX scored is shown
        console.print(score_table(scores))
    batch = trained.preprocess.normalise(raw[:CHECKED_IMAGES])
    report = check_weights(weights, images=batch, dtypes=("float64", "float32"))
    print_report(report)
    return 0 if report.passed else 1


def _train(request: Request, console: Console) -> Trained:
    where: Any = {"data_dir": request.data_dir, "run_dir": request.run_dir}
    how: Any = {"console": console, "stop_after": request.stop_after}
    if request.framework == "torch":
        from vit_torch.train.run import train as train_in_torch

        return train_in_torch(request.job, **where, **how)
    from vit_jax.train.run import train

    spread: Any = {"parallel": request.parallel, "sharding": request.sharding}
    return train(request.job, **where, **how, **spread)


def _without_stop(argv: list[str]) -> list[str]:
    """A command line that was understood, less its --stop-after."""
    words = iter(argv)
    kept = []
    for word in words:
        if word.replace("_", "-") == "--stop-after":
            next(words)
        elif not word.replace("_", "-").startswith("--stop-after="):
            kept.append(word)
    return kept


def score_table(scores: dict[str, Score]) -> Table:
    """Loss and accuracy by who computed them."""
    table = Table(title="test set", title_justify="left")
    table.add_column("computed by")
    for column in ("loss", "right", "accuracy"):
        table.add_column(column, justify="right")
    for name, score in scores.items():
        table.add_row(
            name, f"{score.loss:.6f}", f"{score.correct}/{score.count}", f"{score.accuracy:.4f}"
        )
    return table
