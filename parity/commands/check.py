"""``parity check``: show that the twins are the same function."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from parity.check import DEFAULT_DTYPES, Report, check_preset, check_weights, environment
from parity.command_line import parse
from parity.faults import FAULTS
from parity.report import print_report, summary_header, summary_lines, write_json, write_svg
from parity.tolerance import DType
from vit_config import PRESETS, ConfigError
from vit_config.weights_file import check_writable


def _shown_as(metavar: str) -> Any:
    """How the help shows a flag that has no default."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


@dataclass(frozen=True)
class Arguments:
    """Build both twins with the same weights, feed both the same batch, and compare every parameter,
    every module's output, the logits, the loss and every gradient. Exit status: 0 equal, 1 different,
    2 bad input.
    """

    subject: Annotated[str | None, tyro.conf.Positional, _shown_as("PRESET or FILE")] = None
    """A preset, or the path of a weights file."""
    all: tyro.conf.FlagCreatePairsOff[bool] = False
    """Check every preset instead, one line for each type."""
    dtype: Annotated[tuple[DType, ...], tyro.conf.arg(metavar="{float64,float32,bfloat16} ...")] = (
        DEFAULT_DTYPES
    )
    """Types to compare in. float64 shows that the algebra is the same; float32 and bfloat16 that neither
    twin is less accurate than the other."""
    batch_size: int = 2
    """Images in the batch."""
    seed: int = 0
    """Seed of the re-drawn weights and of the batch."""
    token_offset: float = 0.0
    """Draw a preset's positions from N(OFFSET, 2^2): its norms then see inputs of that mean."""
    fault: Annotated[str | None, _shown_as("NAME")] = None
    """Inject a deliberate fault and watch the check fail; `--fault list` shows them all."""
    json: Annotated[Path | None, _shown_as("FILE")] = None
    """Also write the report as JSON to this file."""
    svg: Annotated[Path | None, _shown_as("FILE")] = None
    """Also draw the report as an SVG picture."""


def main(argv: list[str], prog: str = "parity check") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(Arguments, argv, prog=prog)
    if arguments.fault == "list":
        for name, fault in FAULTS.items():
            print(f"{name:24}{fault.summary}")
        return 0
    for path in (arguments.json, arguments.svg):
        if path is not None:
            check_writable(path)
    if arguments.all:
        return _check_all(arguments)
    report = _check(arguments)
    print_report(report)
    if arguments.json:
        write_json(report, arguments.json)
    if arguments.svg:
        write_svg(report, arguments.svg)
    return 0 if report.passed else 1


def _check_all(arguments: Arguments) -> int:
    others = arguments.subject, arguments.json, arguments.svg, arguments.fault, arguments.token_offset
    if any(others):
        raise ConfigError("--all goes with --dtype, --batch-size and --seed only")
    print("largest error of each level; in brackets, in epsilons of the type\n" + summary_header())
    failed = 0
    for name in PRESETS:
        report = check_preset(name, **_common(arguments))
        failed += not report.passed
        print(*summary_lines(report), sep="\n", flush=True)
    print(f"{len(PRESETS) - failed} of {len(PRESETS)} presets equal")
    versions = (f"{name} {value}" for name, value in environment().items())
    print(", ".join(versions))
    return 1 if failed else 0


def _check(arguments: Arguments) -> Report:
    if arguments.subject is None:
        raise ConfigError("give a preset or a weights file, or --all; parity check --help explains")
    if arguments.subject in PRESETS or not _looks_like_a_path(arguments.subject):
        return check_preset(
            arguments.subject,
            token_offset=arguments.token_offset,
            fault=arguments.fault,
            **_common(arguments),
        )
    if arguments.token_offset:
        raise ConfigError(
            f"--token-offset {arguments.token_offset:g} draws a preset's positions, but"
            f" {arguments.subject} is a file, whose weights are checked as they are; leave it out"
        )
    return check_weights(arguments.subject, fault=arguments.fault, **_common(arguments))


def _common(arguments: Arguments) -> dict[str, Any]:
    if arguments.batch_size < 1:
        raise ConfigError(f"--batch-size {arguments.batch_size}: must be at least 1")
    if arguments.seed < 0:
        raise ConfigError(f"--seed {arguments.seed}: must not be negative")
    if not math.isfinite(arguments.token_offset):
        raise ConfigError(f"--token-offset {arguments.token_offset}: must be a finite number")
    if not arguments.dtype:
        raise ConfigError("--dtype: name at least one of float64, float32, bfloat16")
    return {"dtypes": arguments.dtype, "batch_size": arguments.batch_size, "seed": arguments.seed}


def _looks_like_a_path(subject: str) -> bool:
    return Path(subject).exists() or "/" in subject or subject.endswith(".safetensors")
