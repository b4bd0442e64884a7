"""``parity diff``: find whether two programs are the same, and where and why they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from parity.cli.support.command_line import parse
from parity.cli.support.devices import OnDevices
from parity.cli.support.reading import shown_as
from parity.cli.support.recordings import Recordings
from parity.verifier.choices import LOW, TYPED, Low, Typed
from vit_config import ConfigError, InputError
from vit_config.files.atomic import together
from vit_config.terminal import complain, say

if TYPE_CHECKING:
    from parity.verifier.report.compared import Compared
    from parity.verifier.report.comparison import Place


@dataclass(frozen=True)
class Diff(OnDevices, Recordings):
    """Record every operation of two programs in float64, forward and then backward, find the first
    operations that differ, and print both formulas with their lines of source and the cause. Needs no
    module in common, and no ViT. Compare two recordings of training step by step, and recompute the
    first stage that differs under each known rule. Exit status: 0 equal (or nothing needs float32), 1
    different or not all compared, 2 bad input.
    """

    gradients: tyro.conf.FlagCreatePairsOff[bool] = False
    """Record the backward pass of callables that compute gradients themselves, as training steps do."""
    python_a: Annotated[Path | None, shown_as("PYTHON")] = None
    """Interpreter that runs A, if its framework lives in another environment."""
    python_b: Annotated[Path | None, shown_as("PYTHON")] = None
    """Interpreter that runs B."""
    forward: tyro.conf.FlagCreatePairsOff[bool] = False
    """Compare the forward passes only."""
    dtype: Annotated[Typed | None, shown_as("{" + ",".join(TYPED) + "}")] = None
    """Unless the two differ in float64, also run each in this type and compare it with its own float64
    run, to see whether one is another function in this type or loses more digits."""
    modules: tyro.conf.FlagCreatePairsOff[bool] = False
    """Also print the modules of B: which module of A each is, by the values that it computes, and how
    many of its results A has, forward and backward."""
    repro: Annotated[Path | None, shown_as("FILE.py")] = None
    """Also write the first place as a program of its own, which computes both formulas from their
    inputs and prints the difference; arrays that are not small go into an .npz beside it."""
    since: Annotated[Path | None, shown_as("LAST.json")] = None
    """Report that --json wrote of an earlier run, before B was edited: first say which of its places are
    gone, which are still there and have changed, and which are new."""
    bisect_precision: Annotated[Low | None, shown_as("{" + ",".join(LOW) + "}")] = None
    """Find operations of A alone that must stay in float32 for a run in this type to stay within
    --bound; none of them can be left out."""
    bound: Annotated[float | None, shown_as("ERROR")] = None
    """Largest relative error of an output, in the norm, for --bisect-precision."""

    def check(self) -> None:
        """Refuse flags that contradict each other, and files that cannot be written.

        Raises:
            ConfigError, MissingFileError: says which flag or file.
        """
        from parity.verifier.repro import check_repro

        super().check()
        self.check_devices()
        if self.as_is:
            self._refuse(IN_FLOAT64, "does not go with --as-is; leave one of them out")
            return
        if self.repro is not None:
            check_repro(self.repro)
        for one, other in (("--forward", self.forward), ("--dtype", self.dtype)):
            if self.gradients and other:
                raise ConfigError(f"--gradients is of programs that run backward; leave {one} out")
        if self.bisect_precision is None:
            if self.bound is not None:
                raise ConfigError("--bound goes with --bisect-precision")
            if self.b is None:
                raise ConfigError("give B, to compare A with; --as-is compares A with itself")
            if self.recordings() is not None:
                self._refuse(OF_PROGRAMS, f"goes with two programs, and {self.a} is a recording")
            return
        if self.b is not None:
            raise ConfigError(f"--bisect-precision is about A alone; leave {self.b} out")
        if self.bound is None:
            raise ConfigError("--bisect-precision needs --bound: the error allowed, such as 1e-2")
        if not self.bound > 0:
            raise ConfigError(f"--bound {self.bound}: must be positive")
        if self.html is not None:
            raise ConfigError("--html goes with two sides, --bisect-precision with one")
        self._refuse(OF_PROGRAMS, "goes with two programs, and --bisect-precision is about one")

    def _refuse(self, fields: Sequence[str], why: str) -> None:
        """Refuse the flags of fields that were given. ConfigError: names the first."""
        for name in fields:
            if getattr(self, name) not in (None, False):
                raise ConfigError(f"--{name.replace('_', '-')} {why}")


OF_PROGRAMS = ("gradients", "forward", "modules", "dtype", "repro", "since", "python_a", "python_b")
"""Flags that go with two programs."""
IN_FLOAT64 = (*OF_PROGRAMS[:-1], "html", "bisect_precision", "bound")
"""Flags that do not go with programs as they are."""


def main(argv: list[str], prog: str = "parity diff") -> int:
    """Run the command and return its exit status; `prog` is the name that the user called it by."""
    arguments = parse(Diff, argv, prog=prog)

    from parity.measure.verdict import status

    arguments.check()
    if arguments.as_is:
        return _as_it_is(arguments)
    if arguments.bisect_precision is not None:
        return _bisect(arguments)
    assert arguments.b is not None
    recorded = arguments.recordings()
    if recorded is not None:
        return status(arguments.compare_recordings(*recorded))
    from parity.verifier.report.since import compare_reports, read_report, seen_in

    before = None if arguments.since is None else read_report(arguments.since)
    compared = _compare(arguments)
    _print_remarks(compared.remarks, {"A": arguments.a, "B": arguments.b})
    from parity.verifier.report.of_comparison import report_of

    since = None
    if before is not None and arguments.since is not None:
        since = compare_reports(arguments.since, before, seen_in(compared.to_dict()))
    with together():
        of_repro = []
        if arguments.repro is not None:
            of_repro = reproduce(compared.places, arguments.repro, arguments.a, arguments.b)
        arguments.write(report_of(compared, since))
    say(*(since.to_text() if since is not None else []))
    say(*compared.to_text().splitlines())
    if arguments.modules:
        _show_modules(*compared.module_rows())
    say(*of_repro)
    return status(compared.verdict)


def _compare(arguments: Diff) -> Compared:
    from parity.verifier.compare import compare
    from parity.verifier.programs.build import build_from, build_together
    from parity.verifier.programs.remote import Away
    from vit_config.waiting import Waiting

    assert arguments.b is not None
    names = arguments.a, arguments.b
    orders = [arguments.order(*each) for each in zip(names, ("torch", "jax"), strict=True)]
    pythons = arguments.python_a, arguments.python_b
    with Waiting("building both sides") as waiting:
        sides = build_together(
            [
                lambda batch, order=order, python=python: (
                    build_from(order.of_images(batch)) if python is None
                    else Away(order.of_images(batch), python)
                )
                for order, python in zip(orders, pythons, strict=True)
            ],
            names,
        )  # fmt: skip
        return compare(
            *sides,
            names=names,
            gradients=arguments.gradients,
            backward=not arguments.forward,
            dtype=arguments.dtype,
            on_stage=waiting.now,
            on_place=_tell_of,
        )


def _as_it_is(arguments: Diff) -> int:
    from parity.measure.shown import write_json
    from parity.measure.verdict import status
    from vit_config.waiting import Waiting

    orders = [arguments.order(each, "torch") for each in (arguments.a, arguments.b or arguments.a)]
    with Waiting("running A") as waiting:
        result = arguments.compare_devices(orders[0], orders[1], arguments.python_b, waiting.now)
    if arguments.json is not None:
        write_json(arguments.json, result.to_dict())
    say(*result.to_text().splitlines())
    return status(result.verdict)


def _tell_of(place: Place) -> None:
    """Say on standard error what was found first, before all is known."""
    from parity.verifier.report.comparison import title_of

    sides = (f"{side} {part.where} {part.formula}" for side, part in (("A", place.a), ("B", place.b)))
    complain(f"found first: {title_of(place)}; {'; '.join(sides)}; looking for others")


def _show_modules(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print B's modules as a table."""
    from rich.table import Table
    from rich.text import Text

    from parity.measure.tables import show_table
    from vit_config.screen import screen

    say("", *([] if rows else ["B has no modules"]))
    table = Table(*head, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for row in rows:
        table.add_row(*map(Text, row))
    if rows:
        show_table(table, screen(1000, highlight=False))


def _print_remarks(remarks: Sequence[str], names: Mapping[str, str]) -> None:
    """Print remarks with the user's names of the sides."""
    for remark in remarks:
        side, _, text = remark.partition(": ")
        complain(f"note: {names.get(side, side)}: {text}")


def _bisect(arguments: Any) -> int:
    from parity.measure.shown import write_json
    from parity.verifier.precision import bisect_precision
    from vit_config.waiting import Waiting

    with Waiting(f"computing operations of A in {arguments.bisect_precision}"):
        result = bisect_precision(arguments.a, arguments.bisect_precision, bound=arguments.bound)
    _print_remarks([f"A: {each}" for each in result.remarks], {"A": arguments.a})
    if arguments.json is not None:
        write_json(arguments.json, result.to_dict())
    say(*result.to_text().splitlines())
    return 0 if not result.held and result.possible and not result.unseen else 1


def reproduce(places: Sequence[Place], path: Path, a: str, b: str) -> list[str]:
    """Write the program and return lines that say what it prints; say why if there is none."""
    if not places:
        complain(f"note: nothing differs, so {path} was not written")
        return []
    from parity.verifier.repro import write_repro

    try:
        printed = write_repro(places[0], path, a=a, b=b)
    except InputError as error:  # what was found stands, and so does its exit status
        complain(f"note: no program was written: {error}")
        return []
    which = "place 1" if len(places) > 1 else "the place"
    return ["", f"{path}: {which} as a program; it prints: {printed}"]
