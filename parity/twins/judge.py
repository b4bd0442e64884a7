"""Comparing recordings of the twins, tensor by tensor and level by level."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import takewhile
from statistics import median

import numpy as np

from parity.measure.recording import LEVELS, Key, Level, Recording
from parity.measure.tolerance import FEW, FLOAT64, LIMITS, RATIO, epsilon, relative_error


@dataclass(frozen=True)
class Verdict:
    """How one tensor fared."""

    key: Key
    jax_error: float
    """float64: relative difference of the twins; else the JAX twin's distance to its own float64 run."""
    torch_error: float
    """float64: the same difference; else the PyTorch twin's distance to its own float64 run."""
    limit: float
    """What the larger error may be."""

    @property
    def score(self) -> float:
        """The larger error over its limit; above 1 is a failure."""
        error = max(self.jax_error, self.torch_error)
        return 0.0 if error == 0.0 else error / self.limit if self.limit else math.inf

    @property
    def passed(self) -> bool:
        """Whether the tensor is within its limit."""
        return self.score <= 1.0


@dataclass(frozen=True)
class LevelResult:
    """All tensors of one level in one type."""

    dtype: str
    level: Level
    count: int
    failures: int
    worst: Verdict
    """The tensor nearest to, or farthest beyond, its limit."""
    largest: float
    """The largest error of any tensor."""
    origin: str
    """Where the limit of the worst tensor comes from."""

    @property
    def passed(self) -> bool:
        """Whether every tensor of the level is within its limit."""
        return self.failures == 0


@dataclass(frozen=True)
class Divergence:
    """The first place, in the order of execution, where the twins differ."""

    dtype: str
    where: str
    """Path of the module that got the same input and gave another output, empty for the model itself;
    or, where every module agrees, the name of the first other tensor."""
    detail: str


@dataclass(frozen=True)
class Runs:
    """The recordings that one type's comparison needs."""

    dtype: str
    jax: Recording
    torch: Recording
    jax_float64: Recording
    """The JAX twin in float64 on the same weights; the same object as `jax` when that is float64."""
    torch_float64: Recording


def compare(runs: Runs) -> tuple[list[LevelResult], Divergence | None]:
    """Judge every tensor of every level; find the first module that differs."""
    results, verdicts = [], {}
    for level in LEVELS:
        keys = _merged(list(runs.jax.keys(level)), list(runs.torch.keys(level)))
        if not keys:  # modules that were not recorded
            continue
        typical = _typical_distance(runs, keys) if level == "gradients" else 0.0
        judged = [_judge(runs, key, typical) for key in keys]
        verdicts.update({verdict.key: verdict for verdict in judged})
        results.append(_level_result(runs.dtype, level, judged))
    return results, _first_divergence(runs, verdicts)


def _merged(a: list[Key], b: list[Key]) -> list[Key]:
    """Both orders as one: what only `b` has is put where `b` has it."""
    shared, rest = set(b), iter(b)
    merged: list[Key] = []
    for key in a:
        if key in shared:
            merged += takewhile(lambda other, key=key: other != key, rest)
        merged.append(key)
    return list(dict.fromkeys((*merged, *rest)))


def _level_result(dtype: str, level: Level, judged: list[Verdict]) -> LevelResult:
    worst = max(judged, key=lambda verdict: verdict.score)
    failures = sum(not verdict.passed for verdict in judged)
    largest = max(max(verdict.jax_error, verdict.torch_error) for verdict in judged)
    return LevelResult(dtype, level, len(judged), failures, worst, largest, _origin(dtype, level, worst))


def _typical_distance(runs: Runs, keys: list[Key]) -> float:
    """The median distance to float64 over some tensors, of the twin in which it is smaller."""
    if runs.dtype == "float64":
        return 0.0
    shared = [key for key in keys if key in runs.jax and key in runs.torch]
    pairs = (runs.jax, runs.jax_float64), (runs.torch, runs.torch_float64)
    return min(
        median(relative_error(run[key], exact[key], _beside(exact, key)) for key in shared)
        for run, exact in pairs
    )


def _judge(runs: Runs, key: Key, typical: float) -> Verdict:
    if key not in runs.jax or key not in runs.torch:
        return Verdict(key, math.inf, math.inf, 0.0)  # one twin does not have it at all
    if key.level == "parameters":
        a, b = runs.jax[key], runs.torch[key]
        same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        error = 0.0 if same else relative_error(a, b) or math.inf
        return Verdict(key, error, error, 0.0)
    if runs.dtype == "float64":
        error = relative_error(runs.jax[key], runs.torch[key], _beside(runs.torch, key))
        return Verdict(key, error, error, FLOAT64)
    jax_error = relative_error(runs.jax[key], runs.jax_float64[key], _beside(runs.jax_float64, key))
    torch_error = relative_error(
        runs.torch[key], runs.torch_float64[key], _beside(runs.torch_float64, key)
    )
    grain = epsilon(runs.dtype)
    luck = max(1.0, math.sqrt(FEW / max(runs.jax[key].size, 1)))
    nearer = max(min(jax_error, torch_error), luck * grain, typical)
    if key.level == "loss":  # of a small batch it can be right by luck
        logits = Key("output", "logits")
        distances = (
            relative_error(runs.jax[logits], runs.jax_float64[logits]),
            relative_error(runs.torch[logits], runs.torch_float64[logits]),
        )
        nearer = max(nearer, min(distances))
    by_twin = RATIO * nearer
    return Verdict(key, jax_error, torch_error, min(LIMITS[runs.dtype][key.level] * grain, by_twin))


def _beside(run: Recording, key: Key) -> np.ndarray | None:
    """What a gradient is compared on the scale of together with itself."""
    other = beside(key.path) if key.level == "gradients" else None
    return None if other is None else run[key._replace(path=other)]


def beside(path: str) -> str | None:
    """The parameter on the scale of whose gradient that of `path` is judged, together with its own.

    The bias of a key norm moves all keys alike, which softmax ignores: in theory its gradient is zero,
    and what is computed is the noise of its layer. The vectors of a differential lambda all share one
    scalar gradient, a sum over all tokens that may cancel; the gain of the heads' norm sums as much.
    """
    module, _, leaf = path.rpartition(".")
    if path.endswith("k_norm.bias"):
        return f"{module}.weight"
    return f"{module}.sub_norm.weight" if leaf.startswith("lambda_") else None


def _origin(dtype: str, level: Level, worst: Verdict) -> str:
    if worst.limit == 0.0 and level != "parameters":
        return "in one twin only"
    if level == "parameters":
        return "bit for bit"
    if dtype == "float64":
        return "rounding"
    bound = LIMITS[dtype][level]
    return f"{bound:g} eps" if worst.limit >= bound * epsilon(dtype) else f"{RATIO:g} x twin"


def _first_divergence(runs: Runs, verdicts: dict[Key, Verdict]) -> Divergence | None:
    """Go through the modules' inputs and outputs as they happened.

    An output that differs although the module's input agreed puts the fault in that module; an input
    that differs although everything before agreed puts it in the parent, between its children.
    """
    order = [key for key in verdicts if key.level == "modules"]
    for key in order:
        if verdicts[key].passed:
            continue
        if key not in runs.jax or key not in runs.torch:
            side = "JAX" if key in runs.jax else "PyTorch"
            return Divergence(runs.dtype, key.path, f"called by the {side} twin only")
        if key.port == "in":
            parent = key.path.rpartition(".")[0]
            parent = "" if parent == "blocks" else parent  # a list is no module that is called
            return Divergence(
                runs.dtype, parent, f"before its {key.path.removeprefix(parent + '.')} is called"
            )
        return Divergence(runs.dtype, key.path, f"{key.port}: same input, another output")
    for level in ("parameters", "output", "loss", "gradients"):
        for key in reversed(list(verdicts)) if level == "gradients" else verdicts:
            if key.level == level and not verdicts[key].passed:
                return Divergence(runs.dtype, key.path, f"every module agrees; {level} differ")
    return None
