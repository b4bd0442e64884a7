"""``parity train``: train the JAX twin, export the weights, port them to PyTorch, and compare."""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.table import Table

from parity.options import parse
from vit_config import ConfigError
from vit_config.scoring import Score

CHECKED_IMAGES = 16
"""Test images in the batch on which the twins are compared."""


def main(argv: list[str]) -> int:
    """Run the command.

    Returns:
        0; 1 if the twins differ; 130 if the run was interrupted.
    """
    request = parse(argv, prog="parity train")
    try:
        from vit_jax.train.run import train
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"training needs the package {error.name}; pip install 'vit-parity[all]'"
        ) from None
    job, run_dir = request.job, request.run_dir
    console = Console(width=None if Console().is_terminal else 110)
    console.print(f"run folder {run_dir}", highlight=False, soft_wrap=True)
    trained = train(
        job,
        data_dir=request.data_dir,
        run_dir=run_dir,
        parallel=request.parallel,
        sharding=request.sharding,
        console=console,
    )
    if trained.test is None:
        command = shlex.join(["parity", "train", *argv])
        console.print(
            f"stopped after step {trained.step}; to continue: {command}",
            highlight=False,
            soft_wrap=True,
        )
        return 130

    from parity.check import check_weights
    from parity.commands.plot import draw_curves
    from parity.port import IMAGES, WEIGHTS, export, score_in_torch, write_images
    from parity.report import print_report
    from vit_jax.evaluate import evaluate_file

    weights, images = run_dir / WEIGHTS, run_dir / IMAGES
    export(weights, job.model, trained.params, trained.preprocess)
    raw = write_images(images, trained.dataset.test, job.model, trained.preprocess)
    scores = {
        f"JAX, at the end of training, {job.recipe.dtype}": trained.test,
        "JAX, from the weights file": evaluate_file(weights, images),
        "PyTorch, from the weights file, in a process without JAX": score_in_torch(weights, images),
    }
    console.print(score_table(scores))
    console.print(f"weights {weights}, curves {draw_curves(run_dir)}", highlight=False, soft_wrap=True)
    batch = trained.preprocess.normalise(raw[:CHECKED_IMAGES])
    report = check_weights(weights, images=batch, dtypes=("float64", "float32"))
    print_report(report)
    return 0 if report.passed else 1


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
