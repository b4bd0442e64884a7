"""The proof that the twins train alike, for one schema and one recipe."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np

from parity.faults.step_table import STEP_FAULTS
from parity.faults.twin import TwinName
from parity.measure.device import Device
from parity.measure.environment import environment, find_uncertified_flags
from parity.measure.precision import Precision
from parity.measure.tolerance import DType
from parity.runs.state import Arrays
from parity.twins.steps.plan import StepPlan, make_plan
from parity.twins.steps.train_both import TypeResult, walk
from vit_config import ConfigError, Recipe, ViTConfig
from vit_config.files.seal import array_bytes
from vit_config.job import Job

DEFAULT_DTYPES: tuple[DType, ...] = ("float64",)


@dataclass(frozen=True, kw_only=True)
class StepsReport:
    """The outcome of one check of training."""

    subject: str
    config: ViTConfig
    recipe: Recipe
    steps: int
    steps_per_epoch: int
    data: str
    """The batches, in words."""
    dropped: tuple[str, ...]
    """Fields of the schema that were set to 0, because the frameworks draw other random numbers."""
    walks: tuple[TypeResult, ...]
    """One walk for each type."""
    digests: dict[str, str]
    """SHA-256 (hex) of the parameters that both twins started from and that each ended with, in the
    first type."""
    fault: str | None = None
    """The fault that was injected on purpose, if any."""
    environment: dict[str, str] = field(default_factory=dict)
    """Versions, devices and precision."""
    uncertified: tuple[str, ...] = ()
    """Flags that made float32 products less precise than float32, if it was compared."""

    @property
    def agrees(self) -> bool:
        """Whether every step agreed and no run parted faster than its shadows; float32 results at
        reduced precision are ignored."""
        return all(walk.passed for walk in self.walks if not self.uncertified or walk.dtype != "float32")

    @property
    def passed(self) -> bool:
        """Whether all agrees, at a precision at which agreement means something."""
        return self.agrees and not self.uncertified

    def stability(self, walk: TypeResult) -> Stability:
        """Judge the recipe's stability by the shadows of a walk."""
        return stability(walk)


def check_steps(
    subject: str,
    job: Job,
    steps: int,
    *,
    data_dir: Path,
    dtypes: Sequence[DType] = DEFAULT_DTYPES,
    precision: Precision = "highest",
    device: Device = "cpu",
    fault: str | None = None,
    progress: Callable[[str, int], None] = lambda dtype, step: None,
) -> StepsReport:
    """Train both twins `steps` steps and compare them, re-synchronised and freely running.

    Args:
        subject: name of the job.
        job: the job to train; its data may also be `parity.twins.steps.plan.RANDOM`.
        data_dir: the folder of prepared data sets.
        dtypes: types to compute in, in place of the recipe's.
        precision: precision of float32 products in both twins.
        device: device that both twins compute on.
        fault: name of a fault of `parity.faults`, of the model or of a step, to inject on purpose.
        progress: called with a type and the number of steps done in it.

    Raises:
        ConfigError: more steps than the recipe has, fewer than one, or no such fault.
        DataError, MissingFileError: the data does not fit the model, or is not there.
    """
    if steps < 1:
        raise ConfigError(f"--steps {steps}: must be at least 1")
    plan = make_plan(subject, job, steps, data_dir=data_dir)
    walks = []
    for dtype in dict.fromkeys(dtypes):
        with _mistaken(fault, plan, plan.recipe.replace(dtype=dtype)) as recipes:
            result = walk(
                plan,
                recipes,
                precision=precision,
                device=device,
                progress=lambda step, d=dtype: progress(d, step),
            )
        walks.append(result)
    return StepsReport(
        subject=subject,
        config=plan.config,
        recipe=plan.recipe,
        steps=steps,
        steps_per_epoch=plan.steps_per_epoch,
        data=plan.data,
        dropped=plan.dropped,
        walks=tuple(walks),
        digests=_digests(walks[0]),
        fault=fault,
        environment=environment(precision, device),
        uncertified=find_uncertified_flags(dtypes, precision),
    )


@contextmanager
def _mistaken(fault: str | None, plan: StepPlan, recipe: Recipe) -> Iterator[Mapping[str, Recipe]]:
    """Yield the recipe of each twin, with `fault`, if given, injected into one of them."""
    from parity.faults import FAULTS, inject
    from parity.faults.steps import inject_step

    name = (fault or "").replace("@", ":").partition(":")[0]
    if fault is not None and name not in (*FAULTS, *STEP_FAULTS):
        near = difflib.get_close_matches(name, (*STEP_FAULTS, *FAULTS), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`parity list --faults` lists them all"
        raise ConfigError(f"unknown fault {name!r}; {hint}")
    with ExitStack() as stack:
        if fault is None:
            recipes: Mapping[TwinName, Recipe] = {"jax": recipe, "torch": recipe}
        elif fault.partition("@")[0] in STEP_FAULTS:
            recipes = stack.enter_context(inject_step(fault, recipe))
        else:
            stack.enter_context(inject(fault, plan.config))
            recipes = {"jax": recipe, "torch": recipe}
        yield cast(Mapping[str, Recipe], recipes)


def _digests(walk: TypeResult) -> dict[str, str]:
    if walk.initial is None or walk.final is None:
        return {}
    ends = {"jax": walk.final[0].params, "torch": walk.final[1].params}
    return {"initial": digest(walk.initial.params)} | {
        f"{twin} after {len(walk.losses)} steps": digest(params) for twin, params in ends.items()
    }


def digest(arrays: Arrays) -> str:
    """Return the SHA-256 (hex) of the names, types, shapes and values, in the order of names."""
    sha = hashlib.sha256()
    for name, value in sorted(arrays.items()):
        sha.update(f"{name} {value.dtype} {value.shape}\n".encode())
        sha.update(array_bytes(value))
    return sha.hexdigest()


EDGE = 1e4
"""Growth of one step's rounding from which a recipe counts as at the edge of stability. Errors that only
add up grow by at most the number of steps."""
LOST = 1e-3
"""Distance of a shadow above which two runs have little more in common than their recipe."""


@dataclass(frozen=True)
class Stability:
    """How far a run amplifies a rounding error."""

    growth: float
    """Largest ratio of the farthest shadow's distance to the largest nudge before it."""
    lost_at: int | None
    """The first step, counted from 1, at which a shadow is farther than `LOST` from its run; None if
    none is."""
    steps: int

    @property
    def quiet(self) -> bool:
        """Whether rounding errors only add up."""
        return self.growth < max(EDGE, 10.0 * self.steps) and self.lost_at is None

    def sentence(self) -> str:
        """Return the verdict in words."""
        if self.quiet:
            return (
                f"quiet: in {self.steps} steps the error of one step grew {self.growth:.0f}-fold; whole"
                " runs can be compared"
            )
        grew = f"at the edge of stability: the error of one step grew {self.growth:.0e}-fold"
        if self.lost_at is None:
            return f"{grew}; a much longer run cannot be compared number by number"
        return (
            f"{grew}; from step {self.lost_at} on, one implementation differs from itself as much as"
            " from any other"
        )


def stability(walk: TypeResult) -> Stability:
    """Judge a run by the parameters of its shadows."""
    shadows = np.max(walk.curves["parameters"].shadows, axis=1)
    nudges = np.maximum.accumulate(np.maximum(walk.one_step, np.finfo(float).tiny))
    nudges = np.maximum(nudges, shadows[0])  # the first nudge is a unit in the last place
    beyond = np.flatnonzero(shadows > LOST)
    return Stability(
        float(np.max(shadows / nudges)), int(beyond[0]) + 1 if beyond.size else None, len(shadows)
    )
