"""``parity plot RUN``: draw a training run and what its model has learned, as PNG files."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from parity.cli.eval import stated_preprocess
from parity.cli.support.command_line import parse
from parity.cli.support.reading import shown_as
from parity.cli.support.run_weights import runs_here, weights_of
from vit_config import ConfigError, InputError, MissingFileError
from vit_config.files.atomic import together
from vit_config.terminal import complain, say
from vit_train.frameworks import Framework, default_framework

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    from parity.porting.models.loaded import Loaded
    from vit_config import Preprocess
    from vit_train.display.plots import Figure

NUM_IMAGES = 20
"""Most test images drawn: one of each class, where there are no more classes."""
BATCH = 64


@dataclass(frozen=True)
class Plot:
    """Draw a training run, as PNG files in its folder: curves.png with loss, accuracy and learning rate,
    positions.png with the position table beside the fixed sine-cosine one, position_similarity.png with
    the cosine similarity of each patch's position with every other, confusion.png with the class that
    each test image is taken for, and attention.png with where each block looks on one test image of each
    class, those that it takes for another class first. All but the first need the weights and the test
    images that a finished run has exported.
    """

    run: Annotated[str, tyro.conf.Positional, shown_as("RUN")]
    """Folder of a training run; with --image also a checkpoint of any dialect."""
    image: Annotated[tuple[str, ...], shown_as("FILE ...")] = ()
    """Draw instead where each block looks on these images, with the class that the model gives them;
    written into the current folder, as attention_FILE.png."""
    framework: Annotated[Framework | None, shown_as("{jax,torch}", "jax where it is installed")] = None
    """Framework of the twin to run."""


def main(argv: list[str], prog: str = "parity plot") -> int:
    """Run the command, which the user calls `prog`.

    Raises:
        ConfigError: the arguments are wrong.
        MissingFileError: no such folder or image, or no log in the folder.
    """
    arguments = parse(Plot, runs_here(argv), prog=prog)
    if "--image" in argv and not arguments.image:
        raise ConfigError("--image names no file; give one or more behind it")
    framework = arguments.framework or default_framework()
    if arguments.image:
        with weights_of(arguments.run) as weights:
            say(*draw_photos(weights, list(arguments.image), framework))
        return 0
    from parity.porting.models.trained import IMAGES, WEIGHTS
    from vit_train.folder.log import FILE

    run_dir = Path(arguments.run)
    if not (run_dir / FILE).is_file():
        there = "a checkpoint is drawn with --image FILE" if run_dir.exists() else "there is nothing"
        raise MissingFileError(f"{run_dir}: not the folder of a training run; {there}")
    with together():
        written = [draw_curves(run_dir)]
        if (run_dir / WEIGHTS).is_file():
            written += draw_model(run_dir / WEIGHTS, run_dir / IMAGES, framework)
        else:
            complain(f"{run_dir}: no {WEIGHTS} yet, so only the curves are drawn")
    for path in written:
        say(path)
    from vit_config.screen import screen

    show_curve(run_dir, screen())
    return 0


def show_curve(run_dir: Path, console: Console) -> None:
    """Draw the training loss at a terminal; a notebook, which keeps what is printed, is none."""
    from vit_train.display.curve_text import loss_curve
    from vit_train.folder.log import read_log

    shown = console.is_terminal and "JPY_PARENT_PID" not in os.environ
    for line in loss_curve(read_log(run_dir)) if shown else ():
        console.print(line, highlight=False, markup=False)


def draw_curves(run_dir: Path) -> Path:
    """Draw ``curves.png`` from the log of a run.

    Raises:
        MissingFileError: no log.
        InputError: the log has no training step yet.
    """
    from vit_train.display.plots import curves, save_png
    from vit_train.folder.log import read_log

    events = read_log(run_dir)
    if not any(event["kind"] == "train" for event in events):
        raise InputError(f"{run_dir}: the log has no training step yet; nothing to draw")
    path = run_dir / "curves.png"
    save_png(curves(events), path)
    return path


def draw_model(weights: Path, images: Path, framework: Framework) -> list[Path]:
    """Draw the positions, the confusion and the attention of a weights file, beside it."""
    import numpy as np

    from parity.porting.models.files import load, twin_of
    from vit_config.numerics.tables import fixed_position_table, sincos1d
    from vit_config.scoring import check_labelled_images, read_labelled_images
    from vit_config.waiting import Waiting
    from vit_train.display import plots
    from vit_train.display.metrics import Evaluation

    written: dict[str, plots.Figure] = {}
    with _wide(framework), Waiting("reading the model") as waiting:
        loaded = load(weights, framework=framework)
        cfg = loaded.config
        table = fixed_position_table(cfg, cfg.grid)
        if cfg.pos_embed == "learned":
            table = twin_of(framework).to_arrays(loaded.model)["pos_embed"][0].astype(np.float64)
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
        names = preprocess.class_names or [str(label) for label in range(cfg.num_classes)]
        ready = (data.images[begin : begin + BATCH] for begin in range(0, len(data.images), BATCH))
        count = len(data.images)
        waiting.now(f"running the model on {count:,} images", count, NUM_IMAGES)
        batches = waiting.over(ready, ceil(count / BATCH))
        logits = np.concatenate([loaded.of_batch(preprocess.normalise(each)) for each in batches])
        waiting.now("drawing", NUM_IMAGES)
        answers = [[row.argmax()] for row in logits]
        labels = [[each] if np.ndim(each) == 0 else np.flatnonzero(each) for each in data.labels]
        if preprocess.several_labels:
            answers = [np.flatnonzero(row > 0) for row in logits]
            chosen = range(len(labels))[:NUM_IMAGES]
        else:
            softmax = cfg.head_activation != "softmax"
            result = Evaluation.of_logits(logits, data.labels, softmax=softmax)
            written["confusion.png"] = plots.confusion(result.confusion, names)
            chosen = one_of_each(data.labels, result.predicted)[:NUM_IMAGES]
        pairs = [[", ".join(names[k] for k in each[i]) for each in (labels, answers)] for i in chosen]
        written["attention.png"] = _attention(
            loaded,
            data.images[list(chosen)],
            preprocess,
            [f"is {label}\nsays {answer}" for label, answer in pairs],
        )
        folder = weights.parent
        for name, figure in written.items():
            plots.save_png(figure, folder / name)
    return [folder / name for name in written]


def one_of_each(labels: np.ndarray, predicted: np.ndarray) -> list[int]:
    """Return one image of each class: first those classes of which one is taken for another, by it."""
    import numpy as np

    wrong = labels != predicted
    order = [*np.flatnonzero(wrong), *np.flatnonzero(~wrong)]
    first: dict[int, int] = {}
    for each in order:
        first.setdefault(int(labels[each]), int(each))
    return list(first.values())


def draw_photos(weights: str, photos: list[str], framework: Framework) -> list[Path]:
    """Draw where a model looks on a user's own images, a file each in the current folder.

    Raises:
        InputError, MissingFileError, WeightsError, ConfigError: an image, or the model, cannot be used,
            or two images would be drawn as one file.
    """
    from parity.porting.models.files import load
    from vit_config.files.atomic import check_spares
    from vit_config.images.pixels import prepare
    from vit_config.waiting import Waiting
    from vit_train.display import plots

    paths = [Path(f"attention_{Path(photo).stem}.png") for photo in photos]
    for path in paths:
        check_spares(path, map(Path, (weights, *photos)))
    if twice := {path for path in paths if paths.count(path) > 1}:
        raise ConfigError(f"{min(twice)}: two images would be drawn as this file; give them one by one")
    with together(), _wide(framework), Waiting("reading the model") as waiting:
        loaded = load(weights, framework=framework)
        preprocess = stated_preprocess(loaded)
        waiting.now("drawing", len(photos))
        for photo, path in waiting.over(zip(photos, paths, strict=True), len(photos)):
            pixels = prepare(photo, loaded.config.image_size, preprocess)[None]
            title = Path(photo).name
            if loaded.has_classes:
                best = loaded.most_probable(loaded.of_batch(preprocess.normalise(pixels)), 1)[0][0]
                title = f"{title}\nsays {best.label}\n{best.probability:.0%}"
            plots.save_png(_attention(loaded, pixels, preprocess, [title]), path)
    return paths


def _wide(framework: Framework) -> AbstractContextManager[object]:
    """Return a context in which float64 weights stay what they are."""
    if framework == "torch":
        return nullcontext()
    import jax

    return jax.enable_x64(True)


def _attention(loaded: Loaded, pixels: np.ndarray, preprocess: Preprocess, titles: list[str]) -> Figure:
    """Draw where a model looks on prepared pixels (B, H, W, C) uint8."""
    from vit_train.display import plots

    cfg, run = loaded.config, _in_torch if loaded.framework == "torch" else _in_jax
    return plots.attention_maps(
        pixels,
        run(loaded.model, preprocess.normalise(pixels)),
        prefix=cfg.num_prefix_tokens,
        grid=cfg.grid,
        by_class_token=cfg.class_token,
        titles=titles,
    )


def _in_jax(model: Any, images: np.ndarray) -> list[np.ndarray]:
    """Return each block's attention weights (B, h, P + N, P + N) on images (B, H, W, C)."""
    import jax
    import numpy as np

    from vit_jax.functional import get_params, make_apply

    apply = jax.jit(partial(make_apply(model.cfg), return_attention=True))
    given = images.astype(model.patch_embed.proj.kernel[...].dtype)
    return [np.asarray(weights) for weights in apply(get_params(model), given).attention]


def _in_torch(model: Any, images: np.ndarray) -> list[np.ndarray]:
    """Return each block's attention weights (B, h, P + N, P + N) on images (B, H, W, C)."""
    import torch

    given = torch.from_numpy(images).permute(0, 3, 1, 2).to(model.patch_embed.proj.weight.dtype)
    with torch.no_grad():
        return [weights.float().numpy() for weights in model(given, return_attention=True).attention]
