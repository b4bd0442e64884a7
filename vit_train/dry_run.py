"""The rehearsal of a run: everything is built, and two steps are taken on random images."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from vit_config import Preprocess
from vit_config.adapters import draw_adapters
from vit_config.job import Job
from vit_config.parameters import parameters
from vit_train.data.dataset import ImageDataset
from vit_train.data.records import Records
from vit_train.distilling import TeacherWeights, check_taught
from vit_train.folder.start import Start
from vit_train.task import Task
from vit_train.trainer import OnDevices, Params, Stored, Trainer

STEPS = 2


class Rehearsal(NamedTuple):
    """The costs of two steps."""

    parameters: int
    """Numbers in the model's parameters."""
    trained: int
    """Numbers in the parameters that are not frozen."""
    state_bytes: int
    """Bytes of the training state: parameters, moments, average."""
    first_seconds: float
    """Seconds of the first step, compiling included."""
    step_seconds: float
    """Seconds of the second step, with its batch ready."""
    loss: float
    """Loss of the second step."""


class DrawnImages(Sequence[Any]):
    """Images of noise with labels, each drawn when it is asked for."""

    def __init__(
        self, count: int, shape: tuple[int, int, int], num_classes: int, *, several: bool
    ) -> None:
        self.number, self.shape, self.num_classes = count, shape, num_classes
        self.several = several

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: Any) -> Any:
        image = np.random.default_rng(index).integers(0, 256, self.shape, np.uint8)
        label = index % self.num_classes
        return {"image": image, "label": (label,) if self.several else label}


def rehearsal_task(job: Job, start: Start | None = None, teacher: TeacherWeights | None = None) -> Task:
    """Make the task of a job on random images of the model's own size."""
    job.check()
    check_taught(job.recipe, job.model, teacher)
    cfg, size = job.model, job.recipe.batch_size
    shape = (*cfg.image_size, cfg.in_channels)
    classes = max(cfg.num_classes, 1)
    several = job.recipe.several
    records = Records(
        DrawnImages(STEPS * size, shape, classes, several=several),
        where="drawn",
        num_classes=classes,
        image_shape=shape,
        several=several,
    )
    dataset = ImageDataset("drawn", records, records, classes, shape, None, "")
    half = (0.5,) * cfg.in_channels
    recipe = job.recipe.replace(validation_fraction=0.0, sampling="each_once")
    return Task(
        dataclasses.replace(job, recipe=recipe),
        dataset,
        validation=None,
        preprocess=Preprocess(mean=half, std=half),
        steps_per_epoch=STEPS,
        stop_after=STEPS,
        start=start,
        teacher=teacher,
    )


def rehearse(task: Task, trainer: Trainer[OnDevices, Stored, Params]) -> Rehearsal:
    """Build the state and take two steps; nothing is written."""
    program = trainer.program
    state = program.initialise()
    if task.start is not None:
        stored = trainer.with_arrays(program.fetch(state), task.start.arrays)
        state = program.place_state(stored)
    seconds, metrics = [], None
    with closing(task.batches(0)) as batches:
        teach = task.teach(trainer.make_teacher)
        ready = [program.place_batch(teach(next(batches))) for _ in range(STEPS)]
        for batch in ready:
            since = time.perf_counter()
            state, metrics = program.train_step(state, batch)
            (fetched,) = program.fetch([metrics])
            seconds.append(time.perf_counter() - since)
            metrics = fetched
    assert metrics is not None
    nbytes = _nbytes(program.fetch(state))  # PyTorch makes moments in the first step
    sizes = {name: math.prod(each.shape) for name, each in parameters(task.job.model).items()}
    adapters = draw_adapters(task.job.lora, task.job.model, 0)
    sizes |= {name: each.size for name, each in adapters.items()}
    trained = sum(size for name, size in sizes.items() if name not in task.frozen)
    first, second = seconds
    return Rehearsal(sum(sizes.values()), trained, nbytes, first, second, float(metrics["loss"]))


def _nbytes(tree: Any) -> int:
    """Count the bytes of all arrays or tensors in a state."""
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        return sum(map(_nbytes, tree))
    return int(getattr(tree, "nbytes", 0))
