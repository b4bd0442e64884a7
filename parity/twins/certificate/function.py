"""The certificate of `parity check`: two models that are the same function."""

from __future__ import annotations

from typing import cast

from parity.twins.judge import LevelResult
from parity.measure.tolerance import DType
from parity.twins.certificate import facts
from parity.twins.certificate.content import assemble
from parity.twins.certificate.format import (
    Arguments,
    Certificate,
    CheckpointFile,
    Data,
    Digests,
    Level,
    Pair,
    Worst,
    Yardstick,
)
from parity.twins.check import Report


def of_function(
    report: Report, arguments: Arguments, checkpoint: CheckpointFile | None = None
) -> Certificate:
    """What `parity check` found.

    Args:
        arguments: what the check was asked to do.
        checkpoint: the file whose weights were checked; None for a preset.
    """
    weights: dict[str, int | list[int]] = {} if checkpoint else {"weights": report.seed}
    return assemble(
        report,
        arguments,
        kind="function",
        differences=[f"{d.dtype}: {d.where or '(model)'} - {d.detail}" for d in report.divergences],
        dropped=[],
        recipe=None,
        checkpoint=checkpoint,
        data=Data(
            name="random",
            words=report.batch,
            batches=1,
            sha256=report.batch_digest,
            fingerprint=None,
        ),
        seeds={**weights, "batch": report.seed},
        parameters={
            dtype: Digests(initial=Pair(**found), final=None) for dtype, found in report.digests.items()
        },
        yardstick=Yardstick(tolerances=facts.tolerances("function", arguments.dtypes), runs={}),
        levels=[_level(each) for each in report.results],
    )


def _level(result: LevelResult) -> Level:
    worst = result.worst
    return Level(
        dtype=cast(DType, result.dtype),
        level=result.level,
        tensors=result.count,
        failures=result.failures,
        passed=result.passed,
        worst=Worst(
            tensor=str(worst.key),
            step=None,
            jax_error=worst.jax_error,
            torch_error=worst.torch_error,
            limit=worst.limit,
            origin=result.origin,
        ),
    )
