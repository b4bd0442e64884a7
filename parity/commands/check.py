"""``parity check``: show that the twins are the same function."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from parity.check import DEFAULT_DTYPES, Report, check_preset, check_weights
from parity.faults import FAULTS
from parity.report import print_report, write_json, write_svg
from parity.tolerance import DType
from vit_config import PRESETS, ConfigError


@dataclass(frozen=True)
class Arguments:
    """Build both twins with the same weights, feed both the same batch, and compare every parameter,
    every module's output, the logits, the loss and every gradient. Exit status: 0 equal, 1 different,
    2 bad input.
    """

    subject: Annotated[str, tyro.conf.Positional]
    """A preset, or the path of a weights file."""
    dtype: tuple[DType, ...] = DEFAULT_DTYPES
    """Types to compare in. float64 shows that the algebra is the same; float32 and bfloat16 that neither
    twin is less accurate than the other."""
    batch_size: int = 2
    """Images in the batch."""
    seed: int = 0
    """Seed of the re-drawn weights and of the batch."""
    token_offset: float = 0.0
    """Draw a preset's positions from N(OFFSET, 2^2): its norms then see inputs of that mean."""
    fault: str | None = None
    """Inject a deliberate fault and watch the check fail; `--fault list` shows them all."""
    json: Path | None = None
    """Also write the report as JSON to this file."""
    svg: Path | None = None
    """Also draw the report as an SVG picture."""


def main(argv: list[str]) -> int:
    """Run the command."""
    if argv[:2] == ["--fault", "list"]:
        for name, fault in FAULTS.items():
            print(f"{name:24}{fault.summary}")
        return 0
    arguments = tyro.cli(Arguments, args=argv, prog="parity check")
    report = _check(arguments)
    print_report(report)
    if arguments.json:
        write_json(report, arguments.json)
    if arguments.svg:
        write_svg(report, arguments.svg)
    return 0 if report.passed else 1


def _check(arguments: Arguments) -> Report:
    if arguments.batch_size < 1:
        raise ConfigError(f"--batch-size {arguments.batch_size}: must be at least 1")
    common = {
        "dtypes": arguments.dtype,
        "batch_size": arguments.batch_size,
        "seed": arguments.seed,
        "fault": arguments.fault,
    }
    if arguments.subject in PRESETS or not _looks_like_a_path(arguments.subject):
        return check_preset(arguments.subject, token_offset=arguments.token_offset, **common)
    if arguments.token_offset:
        raise ConfigError(
            "--token-offset changes re-drawn weights; a file's weights are checked as they are"
        )
    return check_weights(arguments.subject, **common)


def _looks_like_a_path(subject: str) -> bool:
    return Path(subject).exists() or "/" in subject or subject.endswith(".safetensors")
