"""``python -m evidence.bench``: time the twins beside the other libraries installed."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from evidence.bench.sides import SIDES, Dtype
from parity.cli.dispatch import in_one_line
from parity.cli.support.command_line import parse
from parity.cli.support.reading import shown_as
from vit_config import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from evidence.bench.measure import Result


JSON_VERSION = 1
_NONE = "none"
_FASTER = ", which a side surpassed, so that there is no MFU of it; give the machine's own by --peak"


@dataclass(frozen=True)
class Arguments:
    """Time a preset's forward pass and training step (AdamW) in each side, a twin or another library:
    images per second, and ratios to the first side. Each side has its own process, and each of its runs
    is compared with the first side's before and after it; numbers are medians.
    """

    preset: Annotated[str, tyro.conf.Positional] = "vit_tiny_patch16_224"
    """Preset to time, see `parity list`."""
    batch: int = 16
    """Images in a batch."""
    repeats: int = 10
    """Runs of each pass after the first, which compiles."""
    in_a_row: int = 1
    """Passes in one run, of which the last alone is waited for. On an accelerator the next one is then
    prepared while one computes, as in training; a run's time is that of one pass."""
    sides: tuple[str, ...] = tuple(SIDES)
    """Sides to time; one whose library is not installed is named and left out."""
    dtype: Dtype = "float32"
    """Type of the products: float32 in full, TensorFloat-32 where the device has it, or bfloat16;
    parameters and AdamW are float32 in each."""
    beside: Annotated[Path | None, shown_as("PYTHON")] = None
    """Another interpreter, such as one with a newer JAX, in which each side is timed as well, against
    the same first side: has a compiler become slower?"""
    peak: float | None = None
    """Peak FLOP/s, of which the utilisation (MFU) is a share; by default those of the fastest product
    of two matrices by numpy, PyTorch or JAX, measured first."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Also write the result as JSON to this file, every run included."""


PROG = "python -m evidence.bench"


def main(argv: list[str]) -> int:
    """Run the command; a user's mistake becomes one line and status 2."""
    return in_one_line(lambda: _main(argv), PROG)


def _main(argv: list[str]) -> int:
    arguments = parse(Arguments, argv, prog=PROG)

    from evidence.bench.measure import machine, measure
    from evidence.bench.peak import peak_flops
    from vit_config import preset
    from vit_config.costs import costs
    from vit_config.files.weights_file import check_writable, write_atomically
    from vit_config.screen import screen

    for side in arguments.sides:
        if side not in SIDES:
            raise ConfigError(f"--sides: unknown side {side!r}; the sides are {', '.join(SIDES)}")
    for name in ("batch", "repeats", "in_a_row"):
        if getattr(arguments, name) < 1:
            option = name.replace("_", "-")
            raise ConfigError(f"--{option} = {getattr(arguments, name)}: must be at least 1")
    if arguments.peak is not None and arguments.peak <= 0:
        raise ConfigError(f"--peak = {arguments.peak}: must be greater than 0")
    if arguments.beside and not shutil.which(arguments.beside):
        raise ConfigError(f"--beside = {arguments.beside}: no program that can be run; name a Python")
    flops = costs(preset(arguments.preset)).flops
    if arguments.json:
        check_writable(arguments.json)
    console = screen(144)
    described = machine()
    peak, whose = (arguments.peak, "given") if arguments.peak else peak_flops(arguments.dtype)
    with screen(stderr=True).status("") as status:
        results = measure(
            arguments.sides,
            arguments.preset,
            arguments.batch,
            arguments.repeats,
            arguments.dtype,
            status.update,
            arguments.beside,
            arguments.in_a_row,
        )
    _print(console, arguments, described, results, flops, peak, whose)
    if arguments.json:
        content = {
            "version": JSON_VERSION,
            "preset": arguments.preset,
            "batch": arguments.batch,
            "dtype": arguments.dtype,
            "in_a_row": arguments.in_a_row,
            "flops_per_image": flops,
            "peak_flops": peak,
            "peak_of": whose,
            "machine": described,
            "sides": [asdict(each) for each in results],
        }
        write_atomically(arguments.json, json.dumps(content, indent=2).encode())
    return 0 if any(each.error is None for each in results) else 1


def _print(
    console: Console,
    arguments: Arguments,
    described: dict[str, Any],
    results: list[Result],
    flops: int,
    peak: float,
    whose: str,
) -> None:
    from rich.table import Table

    from evidence.bench.measure import PASSES
    from parity.measure.tables import show_table

    cards = sorted({each.device for each in results if each.device} - {"cpu"})
    devices = "".join(f"{card}, " for card in cards)
    versions = ", ".join(f"{name} {version}" for name, version in described["versions"].items())
    console.print(
        f"{arguments.preset}, {arguments.dtype}, batch {arguments.batch}, {arguments.in_a_row} in a row;"
        f" {devices}{described['processor']}, {described['cores']} cores, load {described['load']}",
        highlight=False,
    )
    console.print(versions, highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("side", no_wrap=True)
    columns = ("images/s", "ratio", "quartiles", "CPU time", "MFU", "first")
    for which in PASSES:
        for column in columns:
            heading = f"{which}\n{column}" if column == "images/s" else f"\n{column}"
            table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("\nMiB", justify="right", no_wrap=True)
    for each in results:
        if each.error is None:
            cells = [c for which in PASSES for c in _cells(each, which, arguments, flops, peak)]
            table.add_row(each.side, *cells, f"{(each.peak_bytes or 0) / 2**20:,.0f}")
    faster = any(_NONE in column.cells for column in table.columns)
    show_table(table, console)
    for each in results:
        if each.error is not None:
            console.print(f"{each.side} left out: {each.error}", highlight=False, markup=False)
    console.print(
        "ratio: speed over that of the first side's runs right before and after, the median and the"
        " quartiles; of the first side, over its own next run, which is what chance alone does; CPU"
        " time: the same in CPU seconds, which other programs disturb less; first: the first run, with"
        " compiling, in seconds; MFU:"
        f" {flops / 1e9:.2f} GFLOP an image (matrix products, two for each multiply-add), three times"
        f" that for a step, of {peak / 1e9:.0f} GFLOP/s ({whose}){_FASTER if faster else ''}",
        highlight=False,
    )


def _cells(each: Result, which: str, arguments: Arguments, flops: int, peak: float) -> list[str]:
    seconds, ratio, cpu = each.median(which), each.ratio(which), each.ratio(which, cpu=True)
    assert seconds is not None
    speed = arguments.batch / seconds
    work = flops * (3 if which == "step" else 1)
    return [
        f"{speed:.1f}",
        f"{ratio[1]:.2f}" if ratio else "-",
        f"{ratio[0]:.2f}-{ratio[2]:.2f}" if ratio else "-",
        f"{cpu[1]:.2f}" if cpu else "-",
        f"{speed * work / peak:.0%}" if speed * work <= peak else _NONE,
        f"{each.first_seconds[which]:.1f}",
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
