"""``parity eval``: score a checkpoint of any dialect on the test split of a data set."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from parity.cli.support.command_line import parse
from parity.cli.support.reading import DATA_DIR, data_folder, shown_as
from parity.cli.support.run_weights import OfModel, is_run, runs_here
from vit_config import ConfigError, InputError, MissingFileError
from vit_config.files.atomic import together
from vit_config.terminal import complain

if TYPE_CHECKING:
    from rich.table import Table

    from parity.porting.models.loaded import Loaded
    from vit_config import Preprocess
    from vit_train.data.dataset import ImageDataset
    from vit_train.display.metrics import Evaluation, SeveralEvaluation

SHOWN = 20
"""Number of classes in the printed table, the worst recognised ones; the JSON file has all."""


@dataclass(frozen=True)
class Eval(OfModel):
    """Score a checkpoint on the test split of a data set: accuracy, classes, calibration."""

    data: Annotated[str | None, shown_as("SET", "the one that the run was trained on")] = None
    """Data set, as `parity train` takes it."""
    data_dir: Annotated[Path | None, DATA_DIR] = None
    """Folder of prepared data sets."""
    batch_size: int = 64
    """Images in a batch; the scores do not depend on it."""
    damaged: Literal["refuse", "replace"] = "refuse"
    """On an image that cannot be read: stop and name it, or leave it out."""
    json: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the result as JSON to this file, the confusion matrix included."""
    plot: Annotated[Path | None, shown_as("FILE")] = None
    """Also draw the confusion matrix, as PNG."""


def main(argv: list[str], prog: str = "parity eval") -> int:
    """Run the command, which the user calls `prog`; return 0."""
    arguments = parse(Eval, runs_here(argv), prog=prog)

    from parity.measure.shown import write_json
    from parity.porting.opening.hub import is_name

    if arguments.batch_size < 1:
        raise ConfigError(f"--batch-size {arguments.batch_size}: give 1 or more")
    from vit_train.batches.data import open_dataset
    from vit_train.batches.fit import fit_dataset
    from vit_train.display.metrics import SeveralEvaluation

    data = arguments.data or trained_on(arguments.source)
    if data is None:
        if not is_name(arguments.source) and not Path(arguments.source).exists():
            raise MissingFileError(
                f"{arguments.source}: no such file or folder; give a training run or a checkpoint"
            )
        raise ConfigError(
            f"{arguments.source} does not say what it was trained on; give --data, such as folder:PATH"
        )
    loaded = arguments.load()
    folder = data_folder(arguments.data_dir)
    dataset = fit_dataset(loaded.config, open_dataset(data, folder), trained=True)
    dataset = dataset.oriented(loaded.preprocess.exif if loaded.preprocess else "ignore")
    for note in dataset.notes:
        complain(f"note: {note}")
    _check_names(loaded, dataset)
    if arguments.plot and dataset.test.several:
        raise ConfigError(
            f"--plot {arguments.plot}: images with several labels have no confusion matrix; leave it out"
        )
    dataset.test.on_damage = arguments.damaged
    result = evaluate(loaded, dataset, arguments.batch_size)
    names = dataset.class_names or tuple(map(str, range(dataset.num_classes)))
    damaged = [str(error) for error in dataset.test.damaged.values()]
    with together():
        if arguments.plot and not isinstance(result, SeveralEvaluation):
            from vit_train.display.plots import confusion, save_png

            save_png(confusion(result.confusion, names), arguments.plot)
        if arguments.json:
            content = {"source": arguments.source, "data": data, "classes": names, **result.to_dict()}
            write_json(arguments.json, content)
    if isinstance(result, SeveralEvaluation):
        _print_several(result, names, damaged)
    else:
        _print(result, names, damaged)
    return 0


def evaluate(loaded: Loaded, dataset: ImageDataset, batch_size: int) -> Evaluation | SeveralEvaluation:
    """Run a model on the test split of a data set, every readable image once.

    Raises:
        InputError: the model's preprocessing is unknown, or the set has several labels for an image
            and the model one, or the reverse.
    """
    import numpy as np

    from vit_config.waiting import Waiting
    from vit_train.batches.data import eval_batches
    from vit_train.display.metrics import Evaluation, SeveralEvaluation

    preprocess = stated_preprocess(loaded)
    if preprocess.several_labels != dataset.test.several:
        ours, theirs = (
            "any number of labels" if each else "one label"
            for each in (preprocess.several_labels, dataset.test.several)
        )
        raise InputError(
            f"the model gives an image {ours}, but an image of {dataset.name} has {theirs}; evaluate it"
            " on data like what it was trained on"
        )
    size, logits, labels = loaded.config.image_size, [], []
    batches = eval_batches(dataset.test, preprocess, image_size=size, batch_size=batch_size)
    images = len(dataset.test)
    with Waiting(f"{images:,} images are evaluated", images) as waiting:
        for batch in waiting.over(batches, math.ceil(images / batch_size)):
            logits.append(loaded.of_batch(batch["image"])[batch["mask"]])
            labels.append(batch["label"][batch["mask"]])
    if preprocess.several_labels:
        return SeveralEvaluation.of_logits(np.concatenate(logits), np.concatenate(labels))
    softmax = loaded.config.head_activation != "softmax"
    return Evaluation.of_logits(np.concatenate(logits), np.concatenate(labels), softmax=softmax)


def stated_preprocess(loaded: Loaded) -> Preprocess:
    """Return the preprocessing of a model's images.

    Raises:
        InputError: it is unknown.
    """
    if loaded.preprocess is None:
        raise InputError(
            "how images are prepared for this model is unknown; state it with"
            " `parity convert --preprocess`"
        )
    return loaded.preprocess


def trained_on(source: str) -> str | None:
    """Return the name of the data set of a run folder; None for anything else."""
    from parity.runs.folder import read_manifest

    return read_manifest(Path(source))["data"]["name"] if is_run(source) else None


def _check_names(loaded: Loaded, dataset: ImageDataset) -> None:
    """Refuse a set whose labels mean other classes than the model's."""
    ours, theirs = loaded.class_names, dataset.class_names
    if ours is None or theirs is None or ours == theirs:
        return
    index = next(i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
    raise ConfigError(
        f"class {index} is {ours[index]!r} in the model and {theirs[index]!r} in {dataset.name};"
        " evaluate on the classes that it was trained on"
    )


def _print(result: Evaluation, names: tuple[str, ...], damaged: list[str]) -> None:
    import numpy as np
    from rich.table import Table

    top = f"top 5 {result.top(5):.4f}, " if len(result.confusion) > 5 else ""
    summary = (
        f"{len(result.labels)} images: accuracy {result.accuracy:.4f}, {top}loss {result.loss:.4f},"
        f" calibration error {result.calibration_error:.4f}"
    )
    table = Table(title="classes, worst first", title_justify="left")
    for column in ("class", "images", "recall", "precision", "most often taken for"):
        table.add_column(column, justify="left" if column.startswith(("class", "most")) else "right")
    for label in np.argsort(result.recall, kind="stable")[:SHOWN].tolist():
        row = result.confusion[label].copy()
        count, row[label] = int(row.sum()), 0
        other = f"{names[int(row.argmax())]} ({row.max()})" if row.any() else ""
        numbers = (f"{result.recall[label]:.4f}", f"{result.precision[label]:.4f}")
        table.add_row(names[label], str(count), *numbers, other)
    _show(summary, table, [names[each] for each in result.never], damaged)


def _print_several(result: SeveralEvaluation, names: tuple[str, ...], damaged: list[str]) -> None:
    import numpy as np
    from rich.table import Table

    precision = result.average_precision
    summary = (
        f"{len(result.labels)} images: mean average precision {np.nanmean(precision):.4f}, F1"
        f" {result.f1:.4f}, all labels right {result.accuracy:.4f}, loss {result.loss:.4f}"
    )
    table = Table(title="classes, worst first", title_justify="left")
    for column in ("class", "images", "average precision", "recall", "precision"):
        table.add_column(column, justify="left" if column == "class" else "right")
    for label in np.argsort(precision, kind="stable")[:SHOWN].tolist():
        scores = (each[label] for each in (precision, result.recall, result.precision))
        count = str(int(result.labels[:, label].sum()))
        table.add_row(names[label], count, *(f"{score:.4f}" for score in scores))
    _show(summary, table, [names[each] for each in result.never], damaged)


def _show(summary: str, table: Table, never: list[str], damaged: list[str]) -> None:
    from parity.measure.tables import show_table
    from vit_config.screen import screen

    console = screen()
    console.print(summary, highlight=False, soft_wrap=True)
    show_table(table, console)
    if never:
        more = f" and {len(never) - SHOWN} more" if len(never) > SHOWN else ""
        said = f"never predicted, so that their precision is 0: {', '.join(never[:SHOWN])}{more}"
        console.print(said, highlight=False, markup=False, soft_wrap=True)
    if damaged:
        console.print(
            f"damaged images that were left out: {len(damaged)}: {'; '.join(damaged[:5])}",
            soft_wrap=True,
        )
