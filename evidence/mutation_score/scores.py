"""What the verifier made of each fault, and of pairs without one."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence import ROOT
from evidence.faults import FAULTS, STEP_FAULTS
from evidence.mutation_score.twins import TRAIN, side, trained
from parity.faults import Fault, inject
from parity.faults.steps import StepFault, inject_step
from parity.faults.twin import TWINS, TwinName
from parity.verifier.compare import compare
from parity.verifier.recordings import Difference, Recorded, compare_sides
from parity.verifier.recordings.diagnosis import diagnose
from parity.verifier.report.comparison import Place
from tests.support import fault_steps
from tests.support.fault_subjects import subject
from tests.support.tiny import variant

FAULTS_FOLDERS = {ROOT / "parity" / "faults", ROOT / "evidence" / "faults"}
BLOCK = 1
"""The one block that is given a fault, of two."""
STEPS = "three training steps"
CLEAN = (
    STEPS, "plain", "per_head", "linear_hwc", "registers", "mean_post_norm", "rope_axial",
    "rel_pos_bias", "grouped", "differential", "parallel", "swiglu_packed", "map", "distilled",
)  # fmt: skip
"""Training and schemas whose pairs without a fault must raise nothing."""
TYPES: dict[str, tuple[str, ...]] = {
    "tanh_gelu_in_float32": ("float32",),
    "fast_variance": ("float64", "float32"),
}
"""Types in which a fault is scored, where that is not float64 alone."""
OFFSETS = {("fast_variance", "float64"): 1000.0, ("fast_variance", "float32"): 1000.0}
"""Offset of the positions: a variance by one pass is wrong where means are large."""


@dataclass(frozen=True)
class Result:
    """The result of one fault in one twin."""

    name: str
    twin: TwinName
    scope: str
    """``one block``, ``all blocks``, ``model`` or ``step``."""
    expected: str | None
    """The cause to be named, or several, joined by `` or ``; None if none is to be."""
    caught: bool
    place: str
    """The named place of the first difference: a module, or the stage of a training step."""
    located: bool
    """Whether that is right."""
    named: str | None
    """The first cause, or None for none."""
    seconds: float
    unseen: str | None = None
    """Why nothing can be seen of it, where nothing can."""
    dtype: str = "float64"
    """The type that both sides compute in."""

    @property
    def label(self) -> str:
        """Its name, and the type it was scored in where that is one of several."""
        return self.name if len(types_of(self.name)) == 1 else f"{self.name} in {self.dtype}"

    @property
    def is_named(self) -> bool:
        """Whether the cause is one that is expected, or none where none is."""
        return (self.named or "none") in (self.expected or "none").split(" or ")

    @property
    def passed(self) -> bool:
        """Whether the verifier did what it should."""
        if self.unseen:
            return not self.caught
        return self.caught and self.located and self.is_named


@dataclass(frozen=True)
class Clean:
    """The result of a pair without a fault."""

    name: str
    dtype: str
    raised: str | None
    """The difference that was said to be there."""


def types_of(name: str) -> tuple[str, ...]:
    """The types in which a fault is scored."""
    return TYPES.get(name, ("float64",))


def model_results(only: Collection[str], quick: bool) -> Iterator[Result]:
    """Each fault in either twin, in one block and in all; `quick`: in one of these, each in its turn."""
    for turn, fault in enumerate(FAULTS.values()):
        scopes = [BLOCK, None] if fault.in_block else [None]
        cases: list[tuple[TwinName, int | None]] = [(twin, block) for twin in TWINS for block in scopes]
        if not only or fault.name in only:
            for dtype in types_of(fault.name):
                for twin, block in [cases[turn % len(cases)]] if quick else cases:
                    yield _model_result(fault, twin, block, dtype)


def _model_result(fault: Fault, twin: TwinName, block: int | None, dtype: str) -> Result:
    started = time.perf_counter()
    cfg = subject(fault.name).replace(depth=2)
    size = (28, 20) if fault.name == "other_resampling" else cfg.image_size
    model = cfg, dtype, size, OFFSETS.get((fault.name, dtype), 0.0)
    with inject(f"{fault.name}@{twin}" + ("" if block is None else f":{block}"), cfg):
        sides = side(_other(twin), *model), side(twin, *model)
        in_type = None if dtype == "float64" else dtype
        diff = compare(*sides, names=("right", "wrong"), dtype=in_type)
    narrowed = diff.forward.types  # is no difference of functions, and is said with its line
    named = [place for place in diff.places if place.cause or place.kind in ("parameter", "input")]
    part = diff.backward if fault.stage == "backward" and diff.backward else diff.forward
    places = part.places or diff.places
    wanted = fault.located(block, cfg.depth)
    return Result(
        fault.name,
        twin,
        "model" if not fault.in_block else "all blocks" if block is None else "one block",
        fault.cause,
        diff.verdict == "DIFFERENT" or bool(narrowed),
        ", ".join(dict.fromkeys(each.b.module for each in places)),
        any(_is_located(each, wanted) for each in places) or (not places and bool(narrowed)),
        named[0].rule if named else "number-type" if narrowed else None,
        time.perf_counter() - started,
        fault.unseen,
        dtype,
    )


def _is_located(place: Place, wanted: str) -> bool:
    """Return whether a place is in a module: by its modules, or by the fault's own line in B. What is
    left out has no line in B; then the module that calls it counts, and the one in front of it."""
    if any(_is_at(name, wanted) for name in (place.b.module, place.a.module, *place.modules)):
        return True
    if any(Path(line.file).parent in FAULTS_FOLDERS for line in place.b.lines):
        return True
    above, _, number = wanted.rpartition(".")
    before = f"{above}.{int(number) - 1}" if number.isdigit() else wanted
    return place.cause.endswith("left out") and (
        place.a.module.rpartition(".")[0] == wanted or _is_at(place.b.module, before)
    )


def _is_at(module: str, wanted: str) -> bool:
    """Whether a line runs in a module, in one below it, or in the one that calls it."""
    return f"{module}.".startswith(f"{wanted}.") or module == wanted.rpartition(".")[0]


def step_results(only: Collection[str], quick: bool) -> Iterator[Result]:
    """Each fault of training steps in either twin; `quick`: in one of them, each in its turn."""
    for turn, fault in enumerate(STEP_FAULTS.values()):
        twins = fault.twins
        if not only or fault.name in only:
            for twin in (twins[turn % len(twins)],) if quick else twins:
                yield _step_result(fault, twin)


def _step_result(fault: StepFault, twin: TwinName) -> Result:
    started = time.perf_counter()
    recipe = fault_steps.RECIPE
    if fault.name == "clip_epsilon":  # what is added to the norm shows where the norm is small
        recipe = recipe.replace(clip_norm=1e-4)
    right = trained(_other(twin), recipe)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wrong.trace"
        with inject_step(f"{fault.name}@{twin}", recipe) as recipes:
            TRAIN[twin](recipes[twin], path)
        difference = compare_sides(right, Recorded(path))
        cause = _first_cause(difference)
    first = difference.first
    stage = first.stage if first else ""
    return Result(
        fault.name,
        twin,
        "step",
        fault.cause,
        first is not None,
        stage,
        stage == fault.stage,
        cause,
        time.perf_counter() - started,
    )


def clean_results(quick: bool, names: Collection[str]) -> Iterator[Clean]:
    """Pairs of CLEAN by name, PyTorch as the reference; `quick`: each in one type."""
    types: Any = ("float64", "float32")
    for turn, name in enumerate(each for each in names if each != STEPS):
        cfg = variant(name).replace(depth=2) if name != "grouped" else variant(name)
        for dtype in types[turn % 2 :][:1] if quick else types:
            sides = (side(twin, cfg, dtype, cfg.image_size) for twin in ("torch", "jax"))
            diff = compare(*sides, dtype=None if dtype == "float64" else dtype)
            yield Clean(name, dtype, None if diff.equal and not diff.no_backward else diff.to_text())
    for dtype in () if STEPS not in names else types[:1] if quick else types:
        recipe = fault_steps.RECIPE.replace(dtype=dtype)
        difference = compare_sides(trained("torch", recipe), trained("jax", recipe))
        yield Clean(STEPS, dtype, _first_difference(difference))


def _first_difference(difference: Difference) -> str | None:
    return None if difference.first is None else f"{difference.first.stage}: {difference.first}"


def _first_cause(difference: Difference) -> str | None:
    try:
        places = diagnose(difference).places
    except Exception as error:  # the diagnosis failed on this fault: a score, not the end of the table
        return type(error).__name__
    causes = places[0].verdict.causes if places else ()
    return causes[0].name if causes else None


def _other(twin: TwinName) -> TwinName:
    return next(each for each in TWINS if each != twin)
