"""Comparison of an exported program's outputs with both twins'."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from parity.exporting.subject import Subject
from parity.measure.error import relative_error
from parity.measure.policies import Limit, own_float64
from parity.measure.seen import unseen
from parity.measure.tolerance import LIMITS, epsilon
from parity.porting.models.files import twin_of
from vit_config import ConfigError, Preprocess, TextConfig
from vit_config.images.pixels import opened, prepare
from vit_config.images.preprocess import WHITE

TWINS = ("jax", "torch")
EXACT, RUN = "running the twin in float64", "running the {} twin"
"""Names of runs, the second of one of `TWINS`."""
Outputs = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class OutputComparison:
    """One output of an exported program, compared with the installed twins."""

    output: str
    error: float
    """Relative distance to the twins' float64 run on the same rounded weights."""
    twins: dict[str, float]
    """The same distance of each twin's own run in the program's type."""
    limit: float | None
    """Largest error that passes; see `parity.measure.policies.own_float64`. None: what int8 costs."""
    origin: str
    unseen: str = ""
    """Why it could not have differed; empty if it could."""
    own: float | None = None
    """The same distance of the program computed in the type's own arithmetic, every result rounded; None
    of float32 and int8."""
    most: float = 0.0
    """Largest distance in the type's own arithmetic that passes."""

    @property
    def passed(self) -> bool:
        """Whether the errors are within their limits."""
        return (self.limit is None or self.error <= self.limit) and self.own_passed

    @property
    def own_passed(self) -> bool:
        """Whether the error in the type's own arithmetic is within its limit."""
        return self.own is None or self.own <= self.most

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        return {**asdict(self), "passed": self.passed}


def pictures(subject: Subject) -> list[np.ndarray]:
    """Draw two batches of pictures of other sizes and proportions: (B, h, w, C) of the type of the
    model's pixels, uint8 if unknown; of a text tower, texts (B, N) int32, each with the token that ends
    it somewhere. Where the batch size is left open, they are of two and of one."""
    counts = (subject.batch or 2, subject.batch or 1)
    if isinstance(cfg := subject.config, TextConfig):
        random, length = np.random.default_rng(0), subject.length
        ids = random.integers(0, cfg.vocab_size, (sum(counts), length), dtype=np.int32)
        ids[range(len(ids)), random.integers(1, length, len(ids))] = (
            cfg.vocab_size - 1 if cfg.eos_id is None else cfg.eos_id
        )
        return [ids[: counts[0]], ids[counts[0] :]]
    height, width = subject.image_size
    sizes = (
        (counts[0], height * 4 // 3 + 1, width * 2 + 3),
        (counts[1], height + 7, max(width * 2 // 3, 1)),
    )
    random = np.random.default_rng(0)
    pixels, channels = subject.metadata.pixels or Preprocess(), cfg.in_channels
    if pixels.pixel_type == "float32":  # of any range: what counts as dark and bright, mean and std say
        spread, middle = np.asarray(pixels.std, np.float32), np.asarray(pixels.mean, np.float32)
        drawn = (random.standard_normal((*each, channels), np.float32) for each in sizes)
        return [each * spread + middle for each in drawn]
    most = WHITE[pixels.pixel_type]
    return [random.integers(0, most + 1, (*each, channels), dtype=pixels.pixel_type) for each in sizes]


def read_pictures(subject: Subject, paths: Sequence[Path]) -> list[np.ndarray]:
    """Read images that are a user's own: batches (B, h, w, C) of one each, or of as many as `Subject`
    fixes, all the same.

    Raises:
        ConfigError: the model is one of texts, or it is unknown how its images are prepared.
        InputError, MissingFileError: a file is no image.
    """
    pixels = subject.metadata.pixels
    if paths and (pixels is None or isinstance(subject.config, TextConfig)):
        what = "is of images, and input = tokens of texts"
        if pixels is None:
            what = "needs to know how images are prepared; state it with preprocess (--preprocess FILE)"
        raise ConfigError(f"images (--images): {what}")
    assert pixels is not None or not paths
    read = (opened(each, len(pixels.mean), pixels.exif)[None] for each in paths) if pixels else ()
    return [np.repeat(each, subject.batch or 1, 0) for each in read]


def prepare_pictures(subject: Subject, batch: np.ndarray) -> np.ndarray:
    """Return pictures resized and cropped by PIL, and normalised: (B, H, W, C) float32.

    Where the preprocessing is unknown, draw images of the model's own size from a normal distribution.
    Token ids stay as they are.
    """
    if isinstance(subject.config, TextConfig):
        return batch
    if (pixels := subject.metadata.pixels) is not None:
        return pixels.normalise(np.stack([prepare(each, subject.image_size, pixels) for each in batch]))
    random = np.random.default_rng(len(batch))
    shape = (len(batch), *subject.image_size, subject.config.in_channels)
    return random.standard_normal(shape).astype(np.float32)


def compare(
    subject: Subject,
    images: Sequence[np.ndarray],
    batches: Sequence[Outputs],
    begin: Callable[[str], object] = lambda what: None,
    *,
    own: Outputs | None = None,
    bound: float | None = None,
) -> tuple[OutputComparison, ...]:
    """Compare an exported program's outputs of several batches with the twins'.

    Args:
        images: prepared batches, (B, H, W, C) float32 each.
        batches: the program's outputs of each batch.
        own: its outputs in the type's own arithmetic, of all batches together.
        bound: the largest error that passes; None derives it from the twins'.
        begin: called with the name of each run of a twin.
    """
    every = np.concatenate(images)
    dtype = next(iter(subject.arrays.values())).dtype
    rounded = every if every.dtype.kind == "i" else every.astype(dtype)
    twins = [each for each in TWINS if find_spec(each)]
    begin(EXACT)
    exact, ran = _run(twins[-1], subject, rounded, np.dtype(np.float64)), {}
    for twin in twins:
        begin(RUN.format(twin))
        ran[twin] = _run(twin, subject, rounded, dtype)
    results = []
    grain, limits = epsilon(subject.dtype), LIMITS.get(subject.dtype, LIMITS["bfloat16"])
    for name in subject.outputs:
        value = np.concatenate([each[name] for each in batches])
        error = relative_error(value, exact[name])
        by_twin = {twin: relative_error(each[name], exact[name]) for twin, each in ran.items()}
        said = unseen([exact[name]])
        if subject.int8:
            what = "dynamic quantisation to int8" if bound is None else "--bound"
            results.append(OutputComparison(name, error, by_twin, bound, what, said))
            continue
        most = limits["modules" if name == "tokens" else "output"]
        finite = [each for each in by_twin.values() if math.isfinite(each)]
        limit = Limit(0.0, "no twin is finite") if not finite else own_float64(
            [error, *finite], bound=most, grain=grain, numbers=value.size
        )  # fmt: skip
        limit = limit if bound is None else Limit(bound, "--bound")
        results.append(
            OutputComparison(
                name, error, by_twin, limit.value, limit.origin, said,
                own=None if own is None else relative_error(own[name], exact[name]),
                most=most * grain if bound is None else bound,
            )
        )  # fmt: skip
    return tuple(results)


def _run(twin: str, subject: Subject, images: np.ndarray, dtype: np.dtype) -> dict[str, np.ndarray]:
    """Return one twin's outputs of (B, H, W, C) images, computed in `dtype`, as float64."""
    arrays = {name: each.astype(dtype) for name, each in subject.arrays.items()}
    images = images if images.dtype.kind == "i" else images.astype(dtype)
    if twin == "jax":
        import jax

        with jax.enable_x64(dtype == np.float64):
            model = subject.model(twin_of(twin), arrays)
            given = jax.device_put(images)
            return _named(subject, jax.jit(lambda images: model(images))(given), np.asarray)
    import torch

    from vit_torch.weights import from_numpy, to_numpy

    model = subject.model(twin_of(twin), arrays)
    with torch.no_grad():
        given = from_numpy(images if images.ndim == 2 else images.transpose(0, 3, 1, 2))
        return _named(subject, model(given), to_numpy)


def _named(
    subject: Subject, output: Any, to_numpy: Callable[[Any], np.ndarray]
) -> dict[str, np.ndarray]:
    values = (to_numpy(each).astype(np.float64) if hasattr(each, "shape") else None for each in output)
    return subject.named(np, type(output)(*values))
