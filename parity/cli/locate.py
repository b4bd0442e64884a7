"""``parity locate``: find where two programs stop computing the same, with the lines of source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from parity.cli.support.command_line import parse
from parity.cli.support.reading import shown_as
from parity.cli.support.reporting import Reporting
from parity.verifier.choices import LOW, Low
from vit_config import ConfigError
from vit_config.terminal import complain, say


@dataclass(frozen=True)
class Locate(Reporting):
    """Record every operation of two programs in float64, find the first operations that differ, and
    print both formulas with their lines of source. Needs no module in common, and no ViT. Exit
    status: 0 equal (or nothing needs float32), 1 different or not all compared, 2 bad input.
    """

    a: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="A")]
    """Reference: FILE.py:FUNCTION or MODULE:FUNCTION that returns a callable with its inputs; or a
    preset or a checkpoint, of which jax:NAME and torch:NAME are the two twins."""
    b: Annotated[str | None, tyro.conf.Positional, shown_as("B")] = None
    """Program to compare with A; left out with --bisect-precision."""
    gradients: tyro.conf.FlagCreatePairsOff[bool] = False
    """Record the backward pass of callables that compute gradients themselves, as training steps do."""
    modules: tyro.conf.FlagCreatePairsOff[bool] = False
    """Also print the modules of B: which module of A each is, by the values that it computes, and how
    many of its results A has."""
    repro: Annotated[Path | None, shown_as("FILE.py")] = None
    """Also write the first place as a program of its own, which computes both formulas from their
    inputs and prints the difference; arrays that are not small go into an .npz beside it."""
    bisect_precision: Annotated[Low | None, shown_as("{" + ",".join(LOW) + "}")] = None
    """Find operations of A alone that must stay in float32 for a run in this type to stay within
    --bound; none of them can be left out."""
    bound: Annotated[float | None, shown_as("ERROR")] = None
    """Largest relative error of an output, in the norm, for --bisect-precision."""

    def check(self) -> None:
        """Refuse flags that contradict each other, and files that cannot be written.

        Raises:
            ConfigError, MissingFileError: which.
        """
        from parity.verifier.operations.repro import check_repro

        super().check()
        if self.repro is not None:
            check_repro(self.repro)
        if self.bisect_precision is None:
            if self.bound is not None:
                raise ConfigError("--bound goes with --bisect-precision")
            if self.b is None:
                raise ConfigError("B must be given")
            return
        if self.b is not None:
            raise ConfigError(f"--bisect-precision is about A alone; leave {self.b} out")
        if self.bound is None:
            raise ConfigError("--bisect-precision needs --bound: the error allowed, such as 1e-2")
        if not self.bound > 0:
            raise ConfigError(f"--bound {self.bound}: must be positive")
        flags = {"--repro": self.repro, "--sarif": self.sarif, "--html": self.html}
        switches = {"--gradients": self.gradients or None, "--modules": self.modules or None}
        for flag, given in [*flags.items(), *switches.items()]:
            if given is not None:
                raise ConfigError(f"{flag} goes with two programs, --bisect-precision with one")


def main(argv: list[str], prog: str = "parity locate") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(Locate, argv, prog=prog)

    from parity.measure.verdict import status
    from parity.verifier.operations import compare
    from parity.verifier.reports.of_comparison import report_of_comparison

    arguments.check()
    if arguments.bisect_precision is not None:
        return _bisect(arguments)
    assert arguments.b is not None
    found = compare(arguments.a, arguments.b, gradients=arguments.gradients)
    _print_remarks(found.remarks, {"A": arguments.a, "B": arguments.b})
    say(*found.to_text().splitlines())
    if arguments.modules:
        _show_modules(found.module_rows())
    arguments.write(report_of_comparison(found, arguments.a, arguments.b))
    if arguments.repro is not None:
        from parity.cli.support.reproducing import reproduce

        reproduce(found, arguments.repro, arguments.a, arguments.b)
    return status(found.verdict)


def _show_modules(rows: Sequence[tuple[str, str, str, str]]) -> None:
    """Print B's modules as a table."""
    from rich.table import Table
    from rich.text import Text

    from parity.measure.tables import show_table
    from parity.verifier.operations.comparison import MODULE_COLUMNS
    from vit_config.screen import screen

    say("", *([] if rows else ["B has no modules"]))
    table = Table(*MODULE_COLUMNS, "", box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for row in rows:
        table.add_row(*map(Text, row))
    if rows:
        show_table(table, screen(1000, highlight=False))


def _print_remarks(remarks: Sequence[str], names: Mapping[str, str]) -> None:
    """Print remarks as `parity diff` does, with the user's names of the sides."""
    for remark in remarks:
        side, _, said = remark.partition(": ")
        complain(f"note: {names.get(side, side)}: {said}")


def _bisect(arguments: Locate) -> int:
    from parity.measure.shown import write_json
    from parity.verifier.precision import bisect_precision

    assert arguments.bisect_precision is not None
    assert arguments.bound is not None
    found = bisect_precision(arguments.a, arguments.bisect_precision, bound=arguments.bound)
    _print_remarks([f"A: {each}" for each in found.remarks], {"A": arguments.a})
    say(*found.to_text().splitlines())
    if arguments.json is not None:
        write_json(arguments.json, found.to_dict())
    return 0 if not found.held and found.possible else 1
