"""Flags of `parity diff`: the two sides, and the files that are written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from parity.cli.support.reading import shown_as
from vit_config import ConfigError
from vit_config.files.atomic import together, write_atomically
from vit_config.terminal import complain

if TYPE_CHECKING:
    from parity.measure.verdict import Verdict
    from parity.verifier.programs.build import BuildOrder
    from parity.verifier.recordings import Recorded
    from parity.verifier.report import Report


@dataclass(frozen=True, kw_only=True)
class Reporting:
    """Files to write."""

    json: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the result as JSON to this file; docs/reports.md describes the fields."""
    html: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the report as one HTML page, which loads nothing else."""

    def write(self, report: Report) -> None:
        """Write the files that were asked for."""
        from parity.measure.shown import write_json
        from parity.verifier.report.page import to_html

        with together():
            if self.html is not None:
                write_atomically(self.html, to_html(report).encode())
            if self.json is not None:
                write_json(self.json, report.to_dict())


@dataclass(frozen=True)
class Recordings(Reporting):
    """The two sides, and what may differ in them if they are recordings."""

    a: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="A")]
    """Reference: FILE.py:FUNCTION or MODULE:FUNCTION that returns a callable with its inputs; a
    preset or a checkpoint, of which jax:NAME and torch:NAME are the two twins; or a recording that
    parity.record wrote."""
    b: Annotated[str | None, tyro.conf.Positional, shown_as("B")] = None
    """Program or recording to compare with A; left out with --bisect-precision, and with --as-is to
    compare A with itself."""
    batch_size: int = 2
    """Images in the batch of presets and checkpoints."""
    seed: int = 0
    """Seed of a preset's weights and of the batch."""
    run_programs: tyro.conf.FlagCreatePairsOff[bool] = False
    """Open a .pt2 even if torch.export may run what is in it: expressions that are more than arithmetic,
    pickles that call, compiled libraries. Others are opened without; an .onnx is data.
    Of two recordings: where a loss or a gradient differs, run again the programs that they name."""
    accept: Annotated[tuple[str, ...], shown_as("CAUSE ...")] = ()
    """Causes by which two recordings of training may differ, such as clip-epsilon: if they are the only
    ones, the two are EQUAL but for them, with exit status 0."""

    def check(self) -> None:
        """Refuse impossible values and flags that contradict each other, before anything is compared.

        Raises:
            ConfigError, MissingFileError: says which flag or file.
        """
        if self.batch_size < 1:
            raise ConfigError(f"--batch-size {self.batch_size}: must be at least 1")
        if self.seed < 0:
            raise ConfigError(f"--seed {self.seed}: must not be negative")
        if self.accept:
            if self.recordings() is None:
                raise ConfigError(f"--accept goes with two recordings, and {self.a} is none")
            from parity.verifier.recordings.steps.names import check_causes

            check_causes(self.accepted)

    @property
    def accepted(self) -> list[str]:
        """Names given by --accept, also several joined by commas."""
        return [name for each in self.accept for name in each.split(",") if name]

    def recordings(self) -> tuple[Recorded, Recorded] | None:
        """Return both sides if they are recordings, else None; see `recordings.sides.recordings`."""
        from parity.verifier.recordings import recordings

        return None if self.b is None else recordings(self.a, self.b)

    def order(self, name: str, twin: str) -> BuildOrder:
        """Return the order to build the program that a name stands for."""
        from parity.verifier.programs.build import BuildOrder

        how = {"batch_size": self.batch_size, "seed": self.seed, "run_programs": self.run_programs}
        return BuildOrder(name=name, twin=twin, **how)

    def compare_recordings(self, a: Recorded, b: Recorded) -> Verdict:
        """Compare two recordings step by step, print what differs and why, and write the files.

        Raises:
            ConfigError, InputError, WeightsError, MissingFileError: see
                `parity.verifier.recordings.compare_sides`.
        """
        from parity.verifier.compare import compare
        from parity.verifier.recordings.diagnosis import diagnose
        from parity.verifier.recordings.difference import compare_sides
        from parity.verifier.recordings.report import print_diagnosis, report_of_diagnosis
        from vit_config.screen import screen
        from vit_config.waiting import Waiting

        with Waiting("comparing both recordings", 1, 1) as waiting:
            difference = compare_sides(a, b)
            waiting.now("looking for causes", 1)
            diagnosis = diagnose(difference, self.accepted, run=compare if self.run_programs else None)
        for note in difference.notes:
            complain(f"note: {note}")
        self.write(report_of_diagnosis(diagnosis))
        print_diagnosis(diagnosis, screen(110))
        return diagnosis.verdict
