"""The certificate of `parity check`: two models that are the same function."""

from __future__ import annotations

from parity.twins.certificate import facts
from parity.twins.certificate.content import assemble, level_of
from parity.twins.certificate.format import (
    Asked,
    Certificate,
    CheckpointFile,
    Data,
    Digests,
    Pair,
    Yardstick,
)
from parity.twins.check import Report


def of_function(
    report: Report, arguments: Asked, checkpoint: CheckpointFile | None = None
) -> Certificate:
    """Make the certificate of a report of `parity check`.

    Args:
        arguments: the arguments of the check.
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
        levels=[level_of(each) for each in report.results],
    )
