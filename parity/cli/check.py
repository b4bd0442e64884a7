"""``parity check``: show that the twins are the same function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from parity.cli.support.advice import withdraw
from parity.cli.support.checking import Checking
from parity.cli.support.command_line import parse
from parity.cli.support.reading import parse_fields, shown_as
from vit_config import ConfigError
from vit_config.files.atomic import together
from vit_config.terminal import say

if TYPE_CHECKING:
    from parity.twins.check import CheckReport


@dataclass(frozen=True)
class Check(Checking):
    """Build both twins with the same weights, feed both the same batch, and compare every parameter,
    every module's output, the logits, the loss and every gradient. `parity check-steps` trains both.
    Exit status: 0 equal, 1 different or uncertified, 2 bad input.
    """

    subject: Annotated[tuple[str, ...], tyro.conf.Positional, shown_as("[PRESET or FILE ...]")] = ()
    """Presets; or checkpoints of any dialect: paths, or names on the Hub, timm:NAME.TAG or
    hf-hub:ORG/NAME, which are downloaded unless its cache has them."""
    fields: Annotated[tuple[str, ...], shown_as("FIELD=VALUE ...", name="set")] = ()
    """Fields of the schema in which a preset is changed in both twins, such as depth=2 norm=rmsnorm."""
    batch_size: Annotated[int, shown_as("N", "2")] = 2
    """Images in the batch."""
    seed: int = 0
    """Seed of the re-drawn weights and of the batch."""
    token_offset: float = 0.0
    """Draw a preset's learned positions from N(OFFSET, 2^2): norms then see inputs of that mean. Only
    float64 has room for it, and is then the default of --dtype."""
    wrong: Annotated[str | None, shown_as("FIELD=VALUE")] = None
    """Build the PyTorch twin of a preset with another value of a schema field, and watch the check
    fail."""
    svg: Annotated[Path | None, shown_as("FILE")] = None
    """Also draw the report as an SVG picture."""


ONE = ("json", "svg", "fault", "wrong", "token_offset")
"""Flags that go with one subject only."""


def main(argv: list[str], prog: str = "parity check") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(Check, argv, prog=prog)

    from parity.measure.shown import write_json
    from parity.twins.check_report import print_report, to_dict, write_svg
    from vit_jax.host_memory import keep_freed_memory

    arguments.refuse(seed=arguments.seed, batch_size=arguments.batch_size)
    if not math.isfinite(arguments.token_offset):
        raise ConfigError(f"--token-offset {arguments.token_offset}: must be a finite number")
    if arguments.fault and arguments.wrong:
        raise ConfigError("--fault and --wrong are two deliberate mistakes; give one")
    subjects = arguments.subject
    if not subjects:
        raise ConfigError(f"give a preset or a checkpoint; {prog} --help explains")
    keep_freed_memory()  # one twin takes what the other has freed
    if len(subjects) > 1:
        return _check_several(arguments, subjects)
    report = _check(arguments, subjects[0])
    with together():
        if arguments.svg:
            write_svg(report, arguments.svg)
        if arguments.json:
            write_json(arguments.json, to_dict(report))
    print_report(report)
    return 0 if report.passed else 1


def _check_several(arguments: Check, subjects: Sequence[str]) -> int:
    from parity.measure.environment import environment
    from parity.twins.check_report import REDUCED, add_summary, summary

    if extra := [name for name in ONE if getattr(arguments, name)]:
        flags = ", ".join("--" + name.replace("_", "-") for name in extra)
        raise ConfigError(f"{flags}: goes with one subject, not {len(subjects)}")
    say("largest error of each level; in brackets, in epsilons of the type", flush=True)
    table = summary(subjects)
    failed = 0
    uncertified: dict[str, None] = {}
    for name in subjects:
        report = _check(arguments, name)
        failed += not report.passed
        add_summary(report, table)
        uncertified.update(dict.fromkeys(report.uncertified))
    say(f"{len(subjects) - failed} of {len(subjects)} equal")
    for flag in uncertified:
        say(f"UNCERTIFIED: {REDUCED} - {flag}")
    versions = (
        f"{name} {value}" for name, value in environment(arguments.precision, arguments.device).items()
    )
    say(", ".join(versions))
    return 1 if failed else 0


def _options(arguments: Check, subject: str) -> dict[str, Any]:
    """Return the arguments of the check of one subject."""
    options: dict[str, Any] = {
        "dtypes": arguments.dtype,
        "precision": arguments.precision,
        "device": arguments.device,
        "batch_size": arguments.batch_size,
        "seed": arguments.seed,
        "fault": arguments.fault,
    }
    if not _is_file(subject):
        wrong = parse_fields([arguments.wrong], "--wrong") if arguments.wrong else None
        options |= {"token_offset": arguments.token_offset, "wrong": wrong}
    return options


def _check(arguments: Check, subject: str) -> CheckReport:
    from parity.twins.check import check_config, check_weights
    from vit_config import preset
    from vit_config.waiting import Waiting

    options = _options(arguments, subject)
    if not _is_file(subject):
        cfg = preset(subject).replace(**parse_fields(arguments.fields))
        with Waiting("drawing weights") as waiting:
            name = " ".join((subject, *arguments.fields))
            return check_config(cfg, subject=name, on_stage=waiting.now, **options)
    if arguments.token_offset or arguments.wrong or arguments.fields:
        flag = f"--wrong {arguments.wrong}" if arguments.wrong else "--token-offset"
        flag = f"--set {' '.join(arguments.fields)}" if arguments.fields else flag
        raise ConfigError(
            f"{flag} goes with a preset, but {subject} is a checkpoint, whose weights and schema are"
            " checked as they are; leave it out"
        )
    withdraw("--set")
    with Waiting(f"reading {subject}") as waiting:
        return check_weights(subject, on_stage=waiting.now, **options)


def _is_file(subject: str) -> bool:
    """Return whether a subject is a checkpoint, not a preset."""
    from parity.porting.opening.hub import is_path
    from vit_config import PRESETS

    return subject not in PRESETS and is_path(subject)
