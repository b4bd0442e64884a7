"""Comparing a certificate with the result of its check today."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from parity.twins.certificate.again import Progress, config_of, recipe_of, run_again
from parity.twins.certificate.file import read_certificate
from parity.twins.certificate.format import Certificate, Level
from vit_config import PRESETS
from vit_config.base import Schema
from vit_config.job import default_job


@dataclass(frozen=True)
class Verification:
    """The result of verifying a certificate."""

    path: Path
    then: Certificate
    today: Certificate
    reasons: tuple[str, ...]
    """Reasons why the certificate is not verified, the gravest first; none if it is."""
    notes: tuple[str, ...]
    """Changes that do not affect the verdict."""

    @property
    def passed(self) -> bool:
        """Whether the certificate holds today."""
        return not self.reasons


def verify(path: Path, *, data_dir: Path, progress: Progress = lambda dtype, step: None) -> Verification:
    """Run the check of a certificate again, and compare the results.

    Args:
        data_dir: the folder of prepared data sets.
        progress: called with a type and the number of training steps done in it.

    Raises:
        WeightsError: the file is no certificate of this version, or edited, or its checkpoint is
            another.
        DataError: its data set is another.
        MissingFileError: the certificate, its checkpoint or its data set is not there.
        ConfigError: a schema or a recipe that this version does not know.
    """
    then = read_certificate(path)
    changed = list(_changed_preset(then, path))
    today = run_again(then, path, data_dir=data_dir, progress=progress)
    notes = (*changed, *_changed(then, today))
    return Verification(
        path=path, then=then, today=today, reasons=tuple(reasons(then, today)), notes=notes
    )


def reasons(then: Certificate, today: Certificate) -> Iterator[str]:
    """Yield the reasons why a certificate does not hold today; none if it does."""
    if not then.passed:
        yield f"the certificate itself says {then.verdict}"
    if then.verdict != today.verdict:
        why = f" ({today.reasons[0]})" if today.reasons else ""
        yield f"the certificate says {then.verdict}, today it is {today.verdict}{why}"
    own, now = config_of(then), config_of(today)
    if fields := [name for name in own.fields() if getattr(own, name) != getattr(now, name)]:
        yield f"the checkpoint is read as another schema today: {', '.join(fields)}"
    yield from _parameters(then, today)
    yield from _tolerances(then, today)
    yield from _levels(then, today)
    for dtype, run in today.yardstick.runs.items():
        for part, curves in run.curves.items():
            for step in curves.failures[:1]:
                yield f"{dtype}: running freely, {part} parted at step {step}"


def _parameters(then: Certificate, today: Certificate) -> Iterator[str]:
    for dtype, digests in then.parameters.items():
        if not digests.initial.same:
            yield f"{dtype}: in the certificate, the twins did not begin with the same parameters"
        now = today.parameters.get(dtype)
        if now is None or now.initial != digests.initial:
            found = "none" if now is None else f"{now.initial.jax[:16]}..., {now.initial.torch[:16]}..."
            yield (
                f"{dtype}: other initial parameters: {digests.initial.jax[:16]}...,"
                f" {digests.initial.torch[:16]}... in the certificate, {found} today"
            )


def _tolerances(then: Certificate, today: Certificate) -> Iterator[str]:
    before = then.yardstick.tolerances
    for name, value in today.yardstick.tolerances.items():
        if name not in before or value > before[name]:
            said = f"{before[name]:g}" if name in before else "not stated"
            yield f"tolerance {name} is looser: {said} in the certificate, {value:g} today"


def _levels(then: Certificate, today: Certificate) -> Iterator[str]:
    found = by_level(today)
    for key, level in by_level(then).items():
        name = " ".join(key)
        now = found.get(key)
        if now is None:
            yield f"{name}: is not compared today"
        elif now.tensors < level.tensors:
            yield f"{name}: only {now.tensors} of {level.tensors} tensors are compared today"
        elif not now.passed:
            worst = now.worst
            yield f"{name}: {worst.tensor} has {worst.error:.1e} today, limit {worst.limit:.1e}"


def by_level(certificate: Certificate) -> dict[tuple[str, str], Level]:
    """Return the levels by type and name."""
    return {(level.dtype, level.level): level for level in certificate.levels}


def _changed_preset(then: Certificate, path: Path) -> Iterator[str]:
    """Yield the changes of the preset since; the certificate is of what it was."""
    if then.checkpoint is not None or then.subject not in PRESETS:
        return
    job = default_job(then.subject)
    pairs: list[tuple[Schema, Schema, tuple[str, ...]]] = [
        (config_of(then, path), job.model.replace(**dict.fromkeys(then.dropped, 0.0)), ())
    ]
    if then.recipe is not None and then.arguments.config is None:
        pairs.append((recipe_of(then, path), job.recipe, ("seed", "batch_size")))  # asked for
    for own, now, asked in pairs:
        for name in own.fields():
            before, after = getattr(own, name), getattr(now, name)
            if before != after and name not in asked:
                yield (
                    f"preset {then.subject} has changed since: {name} = {before} in the certificate,"
                    f" {after} today; what the certificate says is checked"
                )


def _changed(then: Certificate, today: Certificate) -> Iterator[str]:
    flags = {twin: (getattr(then.precision, twin), getattr(today.precision, twin)) for twin in _TWINS}
    for kind, (before, now) in {
        "version": (then.versions, today.versions),
        "device": (then.devices, today.devices),
        **{f"{_TWINS[twin]} precision": pair for twin, pair in flags.items()},
    }.items():
        for name in dict.fromkeys((*before, *now)):
            if before.get(name) != now.get(name):
                yield f"{kind}: {name} {before.get(name, 'none')} then, {now.get(name, 'none')} today"
    for name, value in then.sources.items():
        if today.sources.get(name) != value:
            yield f"the code of {name} has changed since"
    if then.data.sha256 != today.data.sha256:
        yield "other batches than then, to the last bit"
    for name, value in today.yardstick.tolerances.items():
        if value < then.yardstick.tolerances.get(name, value):
            before = then.yardstick.tolerances[name]
            yield f"tolerance {name} is tighter: {before:g} then, {value:g} today"
    for dtype, digests in then.parameters.items():
        now = today.parameters.get(dtype)
        if now is not None and now.final != digests.final:
            yield f"{dtype}: after training, other parameters than then, to the last bit"
    for dtype, run in then.yardstick.runs.items():
        now = today.yardstick.runs.get(dtype)
        if now is not None and now.stability.quiet != run.stability.quiet:
            yield f"{dtype}: {run.stability.sentence} then; {now.stability.sentence} today"


_TWINS = {"jax": "Flax", "torch": "PyTorch"}
