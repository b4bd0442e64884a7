"""``parity plot RUN``: draw a training run and what its model has learned, as PNG files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from parity.cli.support.run_url import runs_here
from vit_config import ConfigError, InputError, MissingFileError
from vit_config.terminal import complain, say

USAGE = """usage: {prog} RUN

Draw the training run in the folder RUN. Written into it:

  curves.png               loss, accuracy and learning rate
  positions.png            the position table, beside the fixed sine-cosine one
  position_similarity.png  cosine similarity of each patch's position with every other
  attention.png            where each block looks, on some test images

The last three need the weights that a finished run has exported."""
NUM_IMAGES = 4


def main(argv: list[str], prog: str = "parity plot") -> int:
    """Run the command, which the user calls `prog`.

    Raises:
        ConfigError: not exactly one argument.
        MissingFileError: no such folder, or no log in it.
    """
    if argv and argv[0] in ("-h", "--help"):
        say(*USAGE.format(prog=prog).splitlines())
        return 0
    argv = runs_here(argv)
    if len(argv) != 1 or argv[0].startswith("-"):
        raise ConfigError("expected one argument, the folder of a training run")
    from parity.porting.trained import IMAGES, WEIGHTS

    run_dir = Path(argv[0])
    if not run_dir.is_dir():
        raise MissingFileError(f"{run_dir}: no such folder; give the folder of a training run")
    written = [draw_curves(run_dir)]
    if (run_dir / WEIGHTS).is_file():
        written += draw_model(run_dir / WEIGHTS, run_dir / IMAGES)
    else:
        complain(f"{run_dir}: no {WEIGHTS} yet, so only the curves are drawn")
    for path in written:
        say(path)
    return 0


def draw_curves(run_dir: Path) -> Path:
    """Draw ``curves.png`` from the log of a run.

    Raises:
        MissingFileError: no log.
        InputError: the log has no training step yet.
    """
    from vit_train.log import read_log
    from vit_train.plots import curves, save_png

    events = read_log(run_dir)
    if not any(event["kind"] == "train" for event in events):
        raise InputError(f"{run_dir}: the log has no training step yet; nothing to draw")
    path = run_dir / "curves.png"
    save_png(curves(events), path)
    return path


def draw_model(weights: Path, images: Path) -> list[Path]:
    """Draw the positions and the attention of a weights file, beside it."""
    import jax
    import numpy as np

    from parity.porting.files import load
    from vit_config.numerics.tables import fixed_position_table, sincos1d
    from vit_config.scoring import check_labelled_images, read_labelled_images
    from vit_jax.functional import get_params, make_apply
    from vit_train import plots

    written: dict[str, plots.Figure] = {}
    with jax.enable_x64(True):
        loaded = load(weights, framework="jax")
        cfg, model = loaded.config, loaded.model
        table = fixed_position_table(cfg, cfg.grid)
        if cfg.pos_embed == "learned":
            table = np.asarray(model.pos_embed[...], np.float64)[0]
        if table is not None:
            tables = {f"positions of this model ({cfg.pos_embed})": table}
            if cfg.pos_embed != "sincos1d" and table.shape[1] % 2 == 0:
                tables["for comparison: fixed 1-D sine-cosine"] = sincos1d(*table.shape)
            written["positions.png"] = plots.position_tables(tables)
            written["position_similarity.png"] = plots.position_similarity(
                table[cfg.num_prefix_rows :], cfg.grid, cfg.patch_size
            )
        data = read_labelled_images(images)
        preprocess = check_labelled_images(cfg, loaded.preprocess, data)
        shown = data.images[:NUM_IMAGES]
        apply = jax.jit(partial(make_apply(cfg), return_attention=True))
        output = apply(
            get_params(model),
            preprocess.normalise(shown).astype(model.patch_embed.proj.kernel[...].dtype),
        )
        names = preprocess.class_names or [str(label) for label in range(cfg.num_classes)]
        logits, labels = np.asarray(output.logits), data.labels[:NUM_IMAGES]
        answers = [[row.argmax()] for row in logits]
        if preprocess.several_labels:
            answers = [np.flatnonzero(row > 0) for row in logits]
        labels = [[each] if np.ndim(each) == 0 else np.flatnonzero(each) for each in labels]
        written["attention.png"] = plots.attention_maps(
            shown,
            [np.asarray(weights) for weights in output.attention],
            prefix=cfg.num_prefix_tokens,
            grid=cfg.grid,
            by_class_token=cfg.class_token,
            titles=[
                f"is {', '.join(names[i] for i in label)}\nsays {', '.join(names[i] for i in answer)}"
                for label, answer in zip(labels, answers, strict=True)
            ],
        )
    folder = weights.parent
    for name, figure in written.items():
        plots.save_png(figure, folder / name)
    return [folder / name for name in written]
