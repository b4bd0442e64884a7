"""The flags that `parity diff` and `parity diagnose` share: the two sides, how to run and align them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from parity.cli.support.reading import shown_as
from parity.cli.support.reporting import Reporting
from parity.measure.precision import PRECISIONS, Precision
from parity.verifier.choices import HOW, How
from vit_config import ConfigError
from vit_config.terminal import complain

if TYPE_CHECKING:
    from parity.verifier.diff.build import Order
    from parity.verifier.diff.difference import Difference
    from parity.verifier.reports.report import Report


def _choice(names: tuple[str, ...]) -> Any:
    return tyro.conf.arg(metavar="{" + ",".join(names) + "}")


@dataclass(frozen=True)
class Comparing(Reporting):
    """The two sides and how to compare them."""

    a: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="A")]
    """Reference: a trace that parity.record wrote, a preset, a checkpoint, or MODULE:FUNCTION or
    FILE.py:FUNCTION that builds a model and returns it with its inputs. Of presets and checkpoints,
    jax:NAME and torch:NAME are the two twins."""
    b: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="B")]
    """Model or trace to compare with A."""
    align: Annotated[How, _choice(HOW)] = "auto"
    """Way to pair modules of A and B: by equal names; by kind and order of calls; by these and the
    values; auto: by names where most are equal, else by order."""
    map: Annotated[Path | None, shown_as("FILE")] = None
    """JSON object that gives for each module of A its partner in B, by their names."""
    dtype: Annotated[str, _choice(("float64", "float32", "bfloat16", "own"))] = "float64"
    """Type of parameters and inputs, cast before models run; own: nothing is cast."""
    precision: Annotated[Precision, _choice(PRECISIONS)] = "highest"
    """Precision of float32 products on GPU and TPU: in full, TensorFloat-32 or the like, or as the
    frameworks are set."""
    python_a: Annotated[Path | None, shown_as("PYTHON")] = None
    """Interpreter that runs A, if its framework lives in another environment."""
    python_b: Annotated[Path | None, shown_as("PYTHON")] = None
    """Interpreter that runs B."""
    shadow: Annotated[Path | None, shown_as("TRACE")] = None
    """Second trace of A, where A is a trace, recorded with parameters one unit in the last place
    away."""
    batch_size: int = 2
    """Images in the batch of presets and checkpoints."""
    seed: int = 0
    """Seed of a preset's weights and of the batch."""
    repro: Annotated[Path | None, shown_as("FILE.py")] = None
    """Also write the first place that has lines of source as a program of its own."""

    def run(self) -> Difference:
        """Compare the two sides.

        Raises:
            ConfigError, InputError, WeightsError, MissingFileError: see
                `parity.verifier.diff.compare_sides`.
        """
        from parity.verifier.diff.difference import compare_sides
        from parity.verifier.diff.named import named_side
        from parity.verifier.diff.sides import Recorded

        if self.batch_size < 1:
            raise ConfigError(f"--batch-size {self.batch_size}: must be at least 1")
        if self.seed < 0:
            raise ConfigError(f"--seed {self.seed}: must not be negative")
        if self.map is not None and self.align != "auto":
            raise ConfigError(f"--map and --align {self.align} are two ways to align; give one")
        self.check()
        if self.repro is not None:
            from parity.verifier.operations.repro import check_repro

            check_repro(self.repro)
        sides = [
            named_side(self._order(name, twin), python)
            for name, twin, python in ((self.a, "torch", self.python_a), (self.b, "jax", self.python_b))
        ]
        if self.shadow is not None and sides[0].runs:
            raise ConfigError(f"--shadow goes with a trace, but {self.a} can be run again; leave it out")
        difference = compare_sides(
            *sides,
            how=self.map or self.align,
            shadow=Recorded(self.shadow) if self.shadow else None,
        )
        for note in difference.notes:
            complain(f"note: {note}")
        if difference.no_lines:
            complain(f"note: no lines of source: {difference.no_lines}")
        return difference

    def finish(self, difference: Difference, report: Report) -> None:
        """Write the files that were asked for."""
        self.write(report)
        if self.repro is not None and difference.lines is not None:
            from parity.cli.support.reproducing import reproduce

            reproduce(difference.lines, self.repro, self.a, self.b)

    def _order(self, name: str, twin: str) -> Order:
        from parity.verifier.diff.build import Order

        return Order(
            name=name,
            twin=twin,
            dtype=None if self.dtype == "own" else self.dtype,
            precision=self.precision,
            batch_size=self.batch_size,
            seed=self.seed,
        )
