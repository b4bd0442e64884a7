"""The certificate of `parity check-steps`: two trainers that train alike."""

from __future__ import annotations

import json
from typing import cast

from parity.measure.digest import digest
from parity.measure.tolerance import DType
from parity.twins.certificate import facts
from parity.twins.certificate.content import assemble, level_of
from parity.twins.certificate.format import (
    Asked,
    Certificate,
    Curves,
    Data,
    Digests,
    FreeRun,
    Pair,
    Stability,
    Yardstick,
)
from parity.twins.steps.check_steps import StepsReport
from parity.twins.steps.steps_report import in_words
from parity.twins.steps.train_both import SHADOWS, Walk
from parity.twins.steps.trainer_torch import TorchTrainer


def of_training(report: StepsReport, arguments: Asked, fingerprint: str | None) -> Certificate:
    """Make the certificate of a report of `parity check-steps`.

    Args:
        arguments: the arguments of the check.
        fingerprint: fingerprint of the data set; None for random batches.
    """
    return assemble(
        report,
        arguments,
        kind="training",
        differences=[said for walk in report.walks for said in _differences(walk)],
        dropped=list(report.dropped),
        recipe=json.loads(report.recipe.to_json()),
        checkpoint=None,
        data=Data(
            name=arguments.data or "",
            words=report.data,
            batches=report.steps,
            sha256=report.batches_digest,
            fingerprint=fingerprint,
        ),
        seeds={"run": report.recipe.seed, "shadows": list(range(SHADOWS))},
        parameters={walk.dtype: _digests(report, walk) for walk in report.walks},
        yardstick=Yardstick(
            tolerances=facts.tolerances("training", arguments.dtypes),
            runs={_dtype(walk): _free_run(report, walk) for walk in report.walks},
        ),
        levels=[
            level_of(result, step=result.worst.site.step)
            for walk in report.walks
            for result in walk.levels.values()
        ],
    )


def _dtype(walk: Walk) -> DType:
    return cast(DType, walk.dtype)


def _differences(walk: Walk) -> list[str]:
    """Describe the first tensor that differs, and the parts of the state that parted."""
    found = [
        f"{walk.dtype}: {in_words(each)}: {each.error:.1e}, limit {each.limit:.1e}"
        for each in walk.failed[:1]
    ]
    for part, curve in walk.curves.items():
        for step in curve.failures[:1]:
            found.append(
                f"{walk.dtype}: running freely, {part} parted at step {step}:"
                f" {curve.twins[step - 1]:.1e}, limit {curve.limits[step - 1]:.1e}"
            )
    return found


def _digests(report: StepsReport, walk: Walk) -> Digests:
    """Return digests of the initial parameters, JAX's and PyTorch's once loaded, and the final ones."""
    assert walk.initial is not None
    assert walk.final is not None
    recipe = report.recipe.replace(dtype=walk.dtype)
    began = TorchTrainer(report.config, recipe, report.steps_per_epoch).begin(walk.initial).state()
    jax, torch = (digest(state.params) for state in walk.final)
    return Digests(
        initial=Pair(jax=digest(walk.initial.params), torch=digest(began.params)),
        final=Pair(jax=jax, torch=torch),
    )


def _free_run(report: StepsReport, walk: Walk) -> FreeRun:
    found = report.stability(walk)
    return FreeRun(
        losses=walk.losses,
        curves={
            part: Curves(
                twins=curve.twins, shadows=curve.shadows, limits=curve.limits, failures=curve.failures
            )
            for part, curve in walk.curves.items()
        },
        stability=Stability(
            quiet=found.quiet, growth=found.growth, lost_at=found.lost_at, sentence=found.sentence()
        ),
        unseen=walk.unseen,
        unseen_difference=walk.unseen_difference,
    )
