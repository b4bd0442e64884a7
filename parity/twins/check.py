"""The proof that the twins are the same function, for one schema and one set of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from parity.measure.device import Device
from parity.measure.environment import environment, find_uncertified_flags
from parity.measure.judged import LevelResult
from parity.measure.precision import Precision
from parity.measure.recording import Recording
from parity.measure.redraw import Batch, branch_norms, random_batch, redraw
from parity.measure.seen import unseen
from parity.measure.tolerance import DEFAULT_DTYPES, DType
from parity.porting.reading.anomalies import not_finite
from parity.porting.reading.checkpoint import read_checkpoint
from parity.twins.judge import FirstDivergence, compare
from parity.twins.task import TEXTS, TwinTask, run_both, text_task
from vit_config import ConfigError, InputError, ViTConfig, WeightsError
from vit_config.init import Kind
from vit_config.inputs import check_image
from vit_config.waiting import Stage, nobody

TEXT = "text "
"""First word of the levels and places of a text tower."""


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """The outcome of one check."""

    subject: str
    """The preset or file that was checked."""
    config: ViTConfig
    weights: str
    """Where the weights came from."""
    batch: str
    """The images that were fed, in words."""
    seed: int
    results: tuple[LevelResult, ...]
    divergences: tuple[FirstDivergence, ...]
    fault: str | None = None
    """The fault that was injected on purpose, if any."""
    environment: dict[str, str] = field(default_factory=dict)
    """Versions and devices."""
    uncertified: tuple[str, ...] = ()
    """Flags that made float32 products less precise than float32, if it was compared."""
    unseen: str = ""
    """Why neither outputs nor gradients could have differed; empty if they could."""
    zero_gradients: tuple[str, ...] = ()
    """Parameters whose gradient is zero throughout: what they do was not compared by it."""

    def __repr__(self) -> str:
        return f"<CheckReport {self.subject}: passed = {self.passed}>"

    @property
    def agrees(self) -> bool:
        """Whether every tensor of every level agreed, in every type.

        float32 results at reduced precision are ignored: they say neither that the twins are the
        same function, nor that they are not. Parameters are compared in full all the same.
        """
        return all(
            result.passed
            for result in self.results
            if not self.uncertified or result.dtype != "float32" or result.level.endswith("parameters")
        )

    @property
    def passed(self) -> bool:
        """Whether all agrees, at a precision and on numbers at which agreement means something."""
        return self.agrees and not self.uncertified and not self.unseen


def check_config(
    cfg: ViTConfig,
    *,
    subject: str = "schema",
    dtypes: Sequence[DType] | None = None,
    batch_size: int = 2,
    seed: int = 0,
    precision: Precision = "highest",
    device: Device = "cpu",
    token_offset: float = 0.0,
    fault: str | None = None,
    wrong: Mapping[str, Any] | None = None,
    on_stage: Stage = nobody,
) -> CheckReport:
    """Check a schema on re-drawn weights and random images.

    Args:
        dtypes: types to compare in; None is float64 and float32, with a token offset float64 alone.
        batch_size: images in the batch.
        seed: seed of weights and batch.
        precision: precision of float32 products in both twins, see `Precision`; a check below the
            highest measures, but certifies nothing.
        device: device that both twins compute on.
        token_offset: if not 0, learned positions are drawn from N(token_offset, 2^2) instead, so
            that norms see inputs of that mean; shows a variance formula that cancels. float64 only.
        fault: name of a fault of `parity.faults` to inject on purpose.
        wrong: schema fields to give other values in the PyTorch twin alone, on purpose.
        on_stage: called before each run with its description, and the seconds that it and all others are
            expected to take.

    Raises:
        ConfigError: no such fault, field or device, or options that do not go together.
    """
    if token_offset and cfg.pos_embed != "learned":
        raise ConfigError(
            f"token_offset = {token_offset:g} draws learned positions, but pos_embed ="
            f' "{cfg.pos_embed}"; leave it out'
        )
    dtypes = dtypes or (("float64",) if token_offset else DEFAULT_DTYPES)
    if token_offset and set(dtypes) != {"float64"}:
        raise ConfigError(
            f"token_offset = {token_offset:g} makes the problem ill-conditioned on purpose, which only"
            f' float64 has room for, but dtypes = {tuple(dtypes)}; use dtype "float64" alone'
        )

    def weights(name: str, kind: Kind, shape: tuple[int, ...]) -> np.ndarray:
        value = redraw(name, kind, shape, seed, branch_norms=branch_norms(cfg))
        return token_offset + 10 * value if token_offset and name == "pos_embed" else value

    batch = random_batch(cfg, batch_size, seed)
    offset = f", positions N({token_offset:g}, 2^2) in float64 alone" if token_offset else ""
    wrongly = ", ".join(f"PyTorch: {name} = {value}" for name, value in (wrong or {}).items())
    return _report(
        TwinTask(cfg, weights, "float64", batch, fault=fault, wrong=wrong or {}),
        dtypes,
        precision,
        device,
        subject=subject,
        weights=f"re-drawn N(0, 0.2^2){offset}",
        batch=f"{batch_size} random images of {cfg.image_size[0]}x{cfg.image_size[1]}x{cfg.in_channels}",
        seed=seed,
        fault=wrongly or fault,
        on_stage=on_stage,
    )


def check_weights(
    source: str | Path,
    *,
    images: np.ndarray | None = None,
    dtypes: Sequence[DType] | None = None,
    batch_size: int = 2,
    seed: int = 0,
    precision: Precision = "highest",
    device: Device = "cpu",
    fault: str | None = None,
    on_stage: Stage = nobody,
) -> CheckReport:
    """Check the weights of a checkpoint, on given images or on random ones.

    Args:
        source: a file or folder of any dialect, or a name on the Hub.
        images: (B, H, W, C), already normalised; None draws `batch_size` random ones.
        precision: see `check_config`, as `device` and `on_stage`.

    Raises:
        MissingFileError, WeightsError, ConfigError: see `read_checkpoint`.
        WeightsError, InputError: the weights or the images hold values that are not finite.
        InputError: the model was not built for such images.
    """
    stored = read_checkpoint(source)
    cfg = stored.config
    arrays = {name: each.load() for name, each in stored.arrays.items()}
    for name, values in arrays.items():
        if problem := not_finite(name, values):
            raise WeightsError(f"{source}: {name}: {problem}, so no results can be compared")
    dtype = next(iter(arrays.values())).dtype.name
    batch = random_batch(cfg, batch_size if images is None else len(images), seed)
    text, unread = text_task(stored, seed)
    if images is not None:
        if images.ndim != 4:
            raise InputError(f"images have shape {images.shape}, expected (B, H, W, C)")
        check_image(cfg, *images.shape[1:])
        if not np.isfinite(images).all():
            raise InputError("images hold values that are not finite, so no results can be compared")
        batch = Batch(images.astype(np.float64), batch.labels)
    return _report(
        TwinTask(cfg, lambda name, kind, shape: arrays[name], dtype, batch, fault=fault),
        dtypes or DEFAULT_DTYPES,
        precision,
        device,
        subject=str(source),
        weights=f"the file's, {dtype}{unread}",
        batch=f"{len(batch.images)} {'random' if images is None else 'given'} images, random labels"
        + (f"; {TEXTS} random texts and embeddings of images" if text else ""),
        text=text,
        seed=seed,
        fault=fault,
        on_stage=on_stage,
    )


def _report(
    task: TwinTask,
    dtypes: Sequence[DType],
    precision: Precision,
    device: Device,
    *,
    text: TwinTask | None = None,
    on_stage: Stage,
    **about: Any,
) -> CheckReport:
    """Run and compare both twins in every type.

    Args:
        text: the inputs of the text tower beside the model, whose levels follow the model's.
        about: the report's fields that say what was asked for.
    """
    results: list[LevelResult] = []
    divergences: list[FirstDivergence] = []
    reasons: list[str] = []
    zeros: list[str] = []
    for tower, each in (("", task), (TEXT, text)):
        if each is None:
            continue
        with closing(run_both(each, dtypes, precision, device, on_stage)) as all_runs:
            for runs in all_runs:
                level_results, parted = compare(runs)
                if runs.dtype == dtypes[0]:
                    why, still = _what_nothing_moves(runs.torch)
                    reasons.append(why)
                    zeros += [f"{tower}{name}" for name in still]
                results += [replace(result, level=f"{tower}{result.level}") for result in level_results]
                if parted:
                    divergences.append(replace(parted, where=f"{tower}{parted.where}"))
    assert isinstance(task.config, ViTConfig)
    return CheckReport(
        config=task.config,
        results=tuple(results),
        divergences=tuple(divergences),
        environment=environment(precision, device),
        uncertified=find_uncertified_flags(dtypes, precision),
        unseen=reasons[0] if reasons and all(reasons) else "",
        zero_gradients=tuple(zeros),
        **about,
    )


def _what_nothing_moves(run: Recording) -> tuple[str, list[str]]:
    """Return why nothing of a run could have differed, empty if something could; and the parameters
    whose gradients are zero throughout. That of the last layer, whatever it is given, is not."""
    outputs = (run.read(site) for site in run.sites("forward") if site.level == "output")
    gradients = {site.path: bool(run.read(site).any()) for site in run.sites("gradients")}
    inside = any(moves for name, moves in gradients.items() if not name.startswith("head."))
    why = "" if inside else unseen(outputs)
    return why, [name for name, moves in gradients.items() if not moves]
