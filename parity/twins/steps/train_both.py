"""Training both twins on the same batches: step by step from the same state, and freely beside shadows.

*Re-synchronised*, each step of the PyTorch twin starts from the state that the JAX twin's run has
reached, so that no error is carried from step to step. *Free-running*, both start together once and go
their own ways. Training can be chaotic: then two correct implementations part, and so does one
implementation from itself. How fast is measured by shadows: the JAX twin trained again from parameters
one unit in the last place away, moved after every step by as much as the twins parted in that one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from parity.measure.device import Device
from parity.measure.invisible import Sight
from parity.measure.judged import Judged, LevelResult
from parity.measure.policies import shadow_limits
from parity.measure.precision import Precision
from parity.measure.tolerance import FLOAT64, epsilon
from parity.runs.distance import distances, unseen_difference
from parity.runs.state import TrainingState
from parity.twins.steps.judge import judge_float64, judge_narrow
from parity.twins.steps.outcome import StepOutcome
from parity.twins.steps.plan import StepPlan
from parity.twins.steps.trainer import Batch, Session, StepGradients
from parity.twins.steps.trainer_jax import JaxSession, JaxTrainer
from parity.twins.steps.trainer_torch import TorchTrainer
from vit_config import Recipe

SHADOWS = 3
"""Number of shadows of a run."""


@dataclass
class Curve:
    """Distances of one part of the state from the JAX twin's run, after each step."""

    twins: list[float] = field(default_factory=list)
    """The PyTorch twin's distance."""
    shadows: list[list[float]] = field(default_factory=list)
    """Each shadow's distance."""

    @property
    def limits(self) -> list[float]:
        """Limits for the twins: `SHADOW` times the largest shadow distance so far, at least
        `FLOAT64`."""
        return shadow_limits(self.shadows)

    @property
    def failures(self) -> list[int]:
        """The steps, counted from 1, at which the twins were farther apart than shadows explain."""
        pairs = zip(self.twins, self.limits, strict=True)
        return [step for step, (twin, limit) in enumerate(pairs, 1) if not twin <= limit]


@dataclass
class TypeResult:
    """The result of training in one type."""

    dtype: str
    unseen: int
    """Count of numbers that the loss cannot see."""
    levels: dict[str, LevelResult] = field(default_factory=dict)
    """All tensors of all steps, by level."""
    failed: list[Judged] = field(default_factory=list)
    """Every tensor beyond its limit, in the order of steps."""
    losses: list[float] = field(default_factory=list)
    """Losses of the JAX twin."""
    one_step: list[float] = field(default_factory=list)
    """Distance of the twins' parameters after each single step from the same state."""
    curves: dict[str, Curve] = field(default_factory=dict)
    """Curves by part of the state."""
    unseen_difference: float = 0.0
    """Largest difference of such a number between the twins after the free runs."""
    initial: TrainingState | None = None
    final: tuple[TrainingState, TrainingState] | None = None
    """Final states of the JAX twin's run and of the PyTorch twin's free run."""

    @property
    def passed(self) -> bool:
        """Whether every step agrees, and the runs part no faster than a run from its shadows."""
        return not self.failed and not any(curve.failures for curve in self.curves.values())


def walk(
    plan: StepPlan,
    recipes: Mapping[str, Recipe],
    *,
    precision: Precision = "highest",
    device: Device = "cpu",
    progress: Callable[[int], None] = lambda step: None,
) -> TypeResult:
    """Train both twins in the type of the recipes.

    Args:
        recipes: recipes by twin, ``jax`` and ``torch``; they differ only where a fault is injected.
        progress: called with the number of steps done.
    """
    dtype = recipes["jax"].dtype
    own = _Twins(plan, recipes, precision, device)
    wide = None
    if dtype != "float64":
        exact = {twin: recipe.replace(dtype="float64") for twin, recipe in recipes.items()}
        wide = _Twins(plan, exact, precision, device)
    sight = Sight(plan.config)
    start = own.jax.initial()
    leader, follower, free = own.jax.begin(start), own.torch.begin(start), own.torch.begin(start)
    shadows = [own.jax.begin(start) for _ in range(SHADOWS)]
    for number, shadow in enumerate(shadows):
        shadow.nudge({"parameters": epsilon("float64" if dtype == "float64" else "float32")}, number)
    result = TypeResult(dtype, unseen=sight.count, initial=start)
    for number, batch in enumerate(plan.batches(), 1):
        before = leader.state()
        follower.load(before)
        jax, torch = _outcome(before, leader, batch), _outcome(before, follower, batch)
        if wide is None:
            judged = list(judge_float64(sight, jax, torch))
        else:
            exact = before.astype("float64")
            jax64, torch64 = wide.step(exact, batch)
            judged = list(judge_narrow(sight, dtype, jax, torch, jax64, torch64))
        _note(result, judged)
        parted = distances(sight, jax.after, torch.after)
        result.losses.append(jax.taken.loss)
        result.one_step.append(parted["parameters"])
        free.step(batch)
        # a fault in the step must not widen its own limit
        allowed = {part: min(size, _most(dtype)) for part, size in parted.items()}
        for which, shadow in enumerate(shadows):
            shadow.step(batch)
            shadow.nudge(allowed, number * SHADOWS + which)
        _follow(result, sight, jax.after, free, shadows)
        progress(number)
    result.final = leader.state(), free.state()
    result.unseen_difference = unseen_difference(sight, *result.final)
    return result


class _Twins:
    """Both trainers of one type, with a run of each for single steps."""

    def __init__(
        self, plan: StepPlan, recipes: Mapping[str, Recipe], precision: Precision, device: Device
    ) -> None:
        cfg, spe = plan.config, plan.steps_per_epoch
        self.jax = JaxTrainer(cfg, recipes["jax"], spe, precision=precision, device=device)
        self.torch = TorchTrainer(cfg, recipes["torch"], spe, precision=precision, device=device)
        self._sessions: tuple[Session, Session] | None = None

    def step(self, before: TrainingState, batch: Batch) -> tuple[StepOutcome, StepOutcome]:
        """Do one step of each twin from the same state."""
        if self._sessions is None:
            self._sessions = self.jax.begin(before), self.torch.begin(before)
        for session in self._sessions:
            session.load(before)
        jax, torch = self._sessions
        return _outcome(before, jax, batch), _outcome(before, torch, batch)


def _outcome(before: TrainingState, session: Session, batch: Batch) -> StepOutcome:
    taken: StepGradients = session.step(batch)
    return StepOutcome(before, taken, session.state())


def _note(walk: TypeResult, judged: list[Judged]) -> None:
    by_level: dict[str, list[Judged]] = {}
    for each in judged:
        by_level.setdefault(each.site.level, []).append(each)
    for level, own in by_level.items():
        new = LevelResult.of(walk.dtype, level, own)
        before = walk.levels.get(level)
        walk.levels[level] = new if before is None else before.and_then(new)
    walk.failed += [each for each in judged if not each.passed]


def _follow(
    walk: TypeResult, sight: Sight, leader: TrainingState, free: Session, shadows: list[JaxSession]
) -> None:
    twins = distances(sight, leader, free.state())
    apart = [distances(sight, leader, shadow.state()) for shadow in shadows]
    for part, distance in twins.items():
        curve = walk.curves.setdefault(part, Curve())
        curve.twins.append(distance)
        curve.shadows.append([each[part] for each in apart])


def _most(dtype: str) -> float:
    """Return the largest nudge that counts as rounding."""
    return FLOAT64 if dtype == "float64" else 64 * epsilon(dtype)
