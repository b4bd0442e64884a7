"""The inputs of both twins' runs, and the runs: of a model, or of the text tower beside it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from parity.measure.device import Device
from parity.measure.nudge import nudge_numbers
from parity.measure.precision import Precision
from parity.measure.recording import Recording
from parity.measure.redraw import Batch, Weights
from parity.measure.tolerance import DType
from parity.porting.reading.checkpoint import Checkpoint
from parity.porting.text.read import has_text, read_text
from parity.twins.judge import Runs
from vit_config import TextConfig, ViTConfig
from vit_config.errors import UnstatedError
from vit_config.parameters import parameters
from vit_config.waiting import Plan, Stage, nobody

NAMES = ("JAX", "PyTorch")
SECONDS = {"float64": 0.055, "float32": 0.03, "bfloat16": 0.06, "float16": 0.06}
"""Seconds of one core for 1e9 operations, the recording of every module included."""
PER_BLOCK = (0.5, 0.1)
"""Seconds of one core for each block, whatever its size: JAX compiles it."""
TEXTS = 4
"""Texts in a batch, and embeddings of images that belong to them."""


@dataclass(frozen=True)
class TwinTask:
    """The inputs of both twins' runs."""

    config: ViTConfig | TextConfig
    weights: Weights
    source: str
    """Type of the given weights."""
    batch: Batch
    fault: str | None
    wrong: Mapping[str, Any] = field(default_factory=dict)


def text_task(stored: Checkpoint, seed: int) -> tuple[TwinTask | None, str]:
    """Return the runs of the text tower beside a model, if there is one, or why it is not run."""
    if has_text(stored) is None:
        return None, ""
    try:
        read = read_text(stored)
    except UnstatedError as error:
        return None, f"; its text tower is not checked: {error}"
    cfg, stream = read.config, np.random.default_rng(seed)
    arrays = {name: each.load() for name, each in read.arrays.items()}
    ids = stream.integers(0, cfg.vocab_size, (TEXTS, cfg.context_length))
    if cfg.eos_id is not None:
        ids[np.arange(TEXTS), stream.integers(0, cfg.context_length, TEXTS)] = cfg.eos_id
    images = stream.standard_normal((TEXTS, cfg.projection_dim or cfg.hidden_size))
    dtype = next(iter(arrays.values())).dtype.name
    return TwinTask(cfg, lambda name, kind, shape: arrays[name], dtype, Batch(images, ids), None), ""


def run_both(
    task: TwinTask,
    dtypes: Sequence[DType],
    precision: Precision,
    device: Device,
    on_stage: Stage = nobody,
) -> Generator[Runs]:
    """Yield both twins' recordings in each type, with those in float64 of the same numbers.

    Args:
        on_stage: called before each run with its description, and the seconds that it and all others are
            expected to take.
    """
    from parity.faults import inject
    from parity.twins.run_jax import JaxTwin
    from parity.twins.run_torch import TorchTwin

    references: dict[str, tuple[Recording, Recording]] = {}
    cfg = task.config
    with inject(task.fault, cfg) if isinstance(cfg, ViTConfig) else nullcontext():
        twins = (
            JaxTwin(cfg, precision=precision, device=device),
            TorchTwin(
                cfg.replace(**task.wrong) if task.wrong else cfg, precision=precision, device=device
            ),
        )
        plan = Plan(on_stage, _seconds(task, dtypes))

        def run(which: int, dtype: str) -> Recording:
            plan.begin(_run_of(which, dtype, stored))
            return twins[which].run(*start, dtype)

        for dtype in dict.fromkeys(dtypes):
            # every run of this type starts from the same numbers: those that the type can hold
            stored = _narrower(task.source, dtype)
            start = rounded(task.weights, task.batch, stored)
            if stored not in references:
                references.clear()  # those of another type: a huge model's would fill the disk
                references[stored] = run(0, "float64"), run(1, "float64")
            exact = references[stored]
            own = exact
            if dtype != "float64":
                own = run(0, dtype), run(1, dtype)

            def again(seed: int, dtype: DType = dtype, start: Any = start, stored: str = stored) -> Runs:
                plan.begin(f"running both twins in {dtype} on nudged numbers, time {seed}")
                return nudged_runs(twins, dtype, start, stored, seed)

            yield Runs(dtype, *own, *exact, again)


def _seconds(task: TwinTask, dtypes: Sequence[DType]) -> dict[str, float]:
    """Estimate how long each run, forward and backward, takes on one core."""
    if isinstance(cfg := task.config, TextConfig):
        return {}
    tokens = cfg.num_prefix_tokens + math.prod(cfg.grid_of(*cfg.image_size))
    numbers = sum(math.prod(each.shape) for each in parameters(cfg).values())
    billions = 6e-9 * numbers * tokens * len(task.batch.images)
    by_run, compiled = {}, set()
    for wanted in dict.fromkeys(dtypes):
        stored = _narrower(task.source, wanted)
        for dtype, which in itertools.product(dict.fromkeys(("float64", wanted)), range(len(NAMES))):
            work = billions * SECONDS[dtype]
            if (dtype, which) not in compiled:
                compiled.add((dtype, which))
                work += PER_BLOCK[which] * cfg.depth
            by_run.setdefault(_run_of(which, dtype, stored), work)
    return by_run


def _run_of(which: int, dtype: str, stored: str) -> str:
    """Describe a run of a twin on numbers that a type can hold."""
    of = "" if stored == dtype else f", of {stored} numbers"
    return f"running the {NAMES[which]} twin in {dtype}{of}"


def _narrower(a: str, b: str) -> str:
    order = ("bfloat16", "float16", "float32", "float64")
    return min(a, b, key=order.index)


def rounded(weights: Weights, batch: Batch, stored: str) -> tuple[Weights, Batch]:
    """Return weights and a batch in the type in which they are held."""
    dtype = _type(stored)
    images = batch.images.astype(dtype).astype(np.float64)
    return lambda name, kind, shape: weights(name, kind, shape).astype(dtype, copy=False), Batch(
        images, batch.labels
    )


def nudged_runs(
    twins: tuple[Any, Any], dtype: DType, start: tuple[Weights, Batch], stored: str, seed: int
) -> Runs:
    """Run both twins on numbers one unit in the last place away from the given ones.

    Args:
        stored: the type of the given numbers.
    """
    moved = nudged_numbers(*start, stored, seed)
    jax, torch, jax_float64, torch_float64 = (
        twin.run(*moved, kind) for kind in (dtype, "float64") for twin in twins
    )
    return Runs(dtype, jax, torch, jax_float64, torch_float64)


def nudged_numbers(weights: Weights, batch: Batch, stored: str, seed: int) -> tuple[Weights, Batch]:
    """Return weights and a batch of which each number is one unit in the last place away."""
    images = nudge_numbers(batch.images.astype(_type(stored)), seed, "images").astype(np.float64)
    return lambda name, kind, shape: nudge_numbers(weights(name, kind, shape), seed, name), Batch(
        images, batch.labels
    )


def _type(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
