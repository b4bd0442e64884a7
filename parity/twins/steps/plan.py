"""Plans of training on both sides: a schema without dropout, a recipe, and the same batches for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from parity.twins.steps.trainer import Batch
from vit_config import ConfigError, Recipe, ViTConfig
from vit_config.job import Job

RANDOM = "random"
"""Name of batches that are drawn instead of read."""
DIFFERENT = 4
"""Number of different random batches; they are repeated, so that there is something to learn."""


@dataclass(frozen=True)
class StepPlan:
    """Training runs that are to be compared."""

    subject: str
    config: ViTConfig
    """Without dropout: the frameworks draw different numbers."""
    recipe: Recipe
    steps: int
    steps_per_epoch: int
    data: str
    """The batches, in words."""
    batches: Callable[[], Iterator[Batch]]
    """The first `steps` batches of the run, the same each time."""
    dropped: tuple[str, ...]
    """Fields of the schema that were set to 0."""


def make_plan(subject: str, job: Job, steps: int, *, data_dir: Path) -> StepPlan:
    """Plan `steps` steps of a job; its data may be `RANDOM`.

    Raises:
        ConfigError: the recipe has fewer steps, a kernel that only JAX has, a teacher, or classes
            that are not the model's or the data's.
        DataError, MissingFileError: the data set does not fit the model, or is not there.
    """
    job.check()
    cfg, recipe = job.model, job.recipe
    if recipe.kernel != "reference":
        raise ConfigError(
            f'kernel = "{recipe.kernel}" exists in JAX only, and both twins must do the same; use kernel'
            ' = "reference"'
        )
    if recipe.distill != "none":
        raise ConfigError(
            f'distill = "{recipe.distill}" needs a teacher\'s logits, which these batches lack; set'
            ' distill = "none"'
        )
    if recipe.device_side is not None:
        raise ConfigError(
            f"device_side = {recipe.device_side} changes images on the devices, in JAX only, and both"
            " twins must see the same; leave it out"
        )
    dropped = tuple(
        name
        for name in cfg.fields()
        if (name.startswith("dropout_") or name == "stochastic_depth") and getattr(cfg, name)
    )
    cfg = cfg.replace(**dict.fromkeys(dropped, 0.0))
    if job.data == RANDOM:
        if recipe.class_weights == "balanced":
            raise ConfigError(
                'class_weights = "balanced" counts the labels of a data set, but the batches are random;'
                " give one by --data, or numbers"
            )
        per_epoch = -(-steps // recipe.epochs)  # so that the steps cover the schedule
        size = "x".join(map(str, (*cfg.image_size, cfg.in_channels)))
        words = f"{DIFFERENT} random batches of {recipe.batch_size} images of {size}, over and over"
        return StepPlan(
            subject, cfg, recipe, steps, per_epoch, words, lambda: _random(cfg, recipe, steps), dropped
        )
    from vit_train.batches.balance import resolve_class_weights
    from vit_train.batches.data import open_dataset, steps_per_epoch, train_batches
    from vit_train.batches.fit import check_labels, fit_dataset, hold_out, make_preprocess

    whole = fit_dataset(cfg, open_dataset(job.data, data_dir))
    dataset, _ = hold_out(whole, recipe.validation_fraction)
    check_labels(recipe, dataset)
    recipe = resolve_class_weights(job, dataset)[0].recipe
    per_epoch = steps_per_epoch(len(dataset.train), recipe.batch_size)
    if steps > recipe.epochs * per_epoch:
        raise ConfigError(
            f"{steps} steps are more than the {recipe.epochs * per_epoch} of the recipe ({recipe.epochs}"
            f" epochs of {per_epoch}); raise epochs, or ask for fewer"
        )
    preprocess = make_preprocess(dataset, recipe)

    def read() -> Iterator[Batch]:
        source = train_batches(dataset, recipe, preprocess, image_size=cfg.image_size)
        with closing(source):
            yield from islice(source, steps)

    words = f"{job.data} in batches of {recipe.batch_size}"
    return StepPlan(subject, cfg, recipe, steps, per_epoch, words, read, dropped)


def _random(cfg: ViTConfig, recipe: Recipe, steps: int) -> Iterator[Batch]:
    for step in range(steps):
        stream = np.random.default_rng([recipe.seed, step % DIFFERENT])
        images = stream.standard_normal((recipe.batch_size, *cfg.image_size, cfg.in_channels))
        if recipe.several:
            labels = stream.integers(0, 2, (recipe.batch_size, cfg.num_logits)).astype(np.float32)
        else:
            labels = stream.integers(0, cfg.num_logits, recipe.batch_size).astype(np.int32)
        yield {"image": images.astype(np.float32), "label": labels}
