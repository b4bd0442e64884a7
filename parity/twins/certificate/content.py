"""The content that certificates of both kinds share, and the verdict."""

from __future__ import annotations

import datetime
import json
from typing import Any, cast

from parity.measure.judged import LevelResult
from parity.measure.tolerance import DType
from parity.measure.verdict import Verdict
from parity.twins.certificate import facts
from parity.twins.certificate.format import (
    FORMAT,
    VERSION,
    Asked,
    Certificate,
    Digests,
    Flags,
    Level,
    Worst,
)
from parity.twins.check import Report
from parity.twins.check_report import REDUCED
from parity.twins.steps.check_steps import StepsReport
from vit_config.files.json_digest import json_digest


def assemble(
    report: Report | StepsReport,
    arguments: Asked,
    *,
    differences: list[str],
    recipe: dict[str, Any] | None,
    parameters: dict[Any, Digests],
    **rest: Any,
) -> Certificate:
    """Make the certificate of a report.

    Args:
        arguments: the arguments of the check.
        differences: where the twins differ, a sentence each.
        recipe: the recipe as JSON values; None where nothing was trained.
        parameters: digests of the parameters, by type.
        rest: the fields that each kind of certificate fills in its own way.
    """
    parted = [
        f"{dtype}: the twins' initial parameters are not the same, bit for bit"
        for dtype, each in parameters.items()
        if not each.initial.same
    ]
    verdict, reasons = _verdict(report, parted + differences)
    config = json.loads(report.config.to_json())
    return Certificate(
        format=FORMAT,
        version=VERSION,
        made=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        subject=report.subject,
        verdict=verdict,
        passed=verdict == "EQUAL",
        reasons=reasons,
        command=arguments.command(report.subject),
        arguments=arguments,
        config=config,
        config_sha256=json_digest(config, compact=True),
        recipe=recipe,
        recipe_sha256=None if recipe is None else json_digest(recipe, compact=True),
        parameters=parameters,
        precision=Flags(
            requested=arguments.precision,
            jax=dict(report.flags["jax"]),
            torch=dict(report.flags["torch"]),
        ),
        versions=facts.versions(report.environment),
        devices=facts.devices(report.environment),
        sources=facts.sources(),
        **rest,
    )


def level_of(result: LevelResult, step: int | None = None) -> Level:
    """Return a level as a certificate states it.

    Args:
        step: step of the worst tensor, if there are several.
    """
    worst = result.worst
    return Level(
        dtype=cast(DType, result.dtype),
        level=result.level,
        tensors=result.count,
        failures=result.failures,
        passed=result.passed,
        worst=Worst(
            tensor=worst.site.name,
            step=step,
            jax_error=worst.errors[0],
            torch_error=worst.errors[-1],
            limit=worst.limit,
            origin=worst.origin,
        ),
    )


def _verdict(report: Report | StepsReport, differences: list[str]) -> tuple[Verdict, list[str]]:
    """Return the verdict, and the reasons why it is not EQUAL."""
    if differences or not report.agrees:
        return "DIFFERENT", differences
    reasons = [f"{REDUCED} - {flag}" for flag in report.uncertified]
    if report.fault:
        reasons.append(f"a mistake was made on purpose, which this check does not see: {report.fault}")
    return ("UNCERTIFIED" if reasons else "EQUAL"), reasons
