"""Judging recordings of the twins, tensor by tensor and level by level."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from statistics import median

import numpy as np

from parity.measure.error import relative_error, same_bits
from parity.measure.judged import Judged, LevelResult
from parity.measure.policies import ABSENT, BITS, ROUNDING, TWIN, Limit, own_float64
from parity.measure.recording import Recording
from parity.measure.site import LEVELS, Level, Site, output_site
from parity.measure.tolerance import FLOAT64, LIMITS, epsilon, in_a_row

Distances = Mapping[Site, tuple[float, float]]
"""Each twin's distance to its own float64 run, by site."""
DRAWS = 8
"""Runs over which distances are averaged where one may be small by luck."""


@dataclass(frozen=True)
class FirstDivergence:
    """The first place, in the order of execution, where the twins differ."""

    dtype: str
    where: str
    """Path of the module that got the same input and gave another output, empty for the model
    itself; or, if every module agrees, the name of the first tensor that differs."""
    detail: str


@dataclass(frozen=True)
class Runs:
    """The recordings that are compared in one type."""

    dtype: str
    jax: Recording
    torch: Recording
    jax_float64: Recording
    """The JAX twin in float64 on the same weights; the same object as `jax` when that is float64."""
    torch_float64: Recording
    again: Callable[[int], Runs] | None = None
    """Function that runs both twins again, on numbers nudged by a seed; None if that cannot be done."""

    @property
    def own(self) -> tuple[tuple[Recording, Recording], tuple[Recording, Recording]]:
        """Each twin's run, paired with its own float64 run."""
        return (self.jax, self.jax_float64), (self.torch, self.torch_float64)

    def distances(self, site: Site) -> tuple[float, float]:
        """Return each twin's distance to its own float64 run."""
        jax, torch = (error_of(run, exact, site) for run, exact in self.own)
        return jax, torch


def compare(runs: Runs) -> tuple[list[LevelResult], FirstDivergence | None]:
    """Judge every tensor of every level; find the first module that differs.

    A tensor may be beyond its limit only because the other twin came near to float64 by luck. Where
    nothing else is wrong, both twins run `DRAWS` times, each time on numbers one unit in the last place
    away, and root mean squares of the distances are judged: luck does not repeat itself, a less accurate
    path does.
    """
    verdicts = _verdicts(runs, measured := _distances(runs))
    failed = [each for each in verdicts.values() if not each.passed]
    if runs.again and failed and all(each.origin == TWIN and _bounded(runs, each) for each in failed):
        draws = [measured, *(_distances(runs.again(seed)) for seed in range(1, DRAWS))]
        verdicts = _verdicts(runs, {site: _mean(each[site] for each in draws) for site in measured})
    by_level = {
        level: [each for site, each in verdicts.items() if site.level == level] for level in LEVELS
    }
    # modules may not have been recorded
    results = [LevelResult.of(runs.dtype, level, judged) for level, judged in by_level.items() if judged]
    return results, _first_divergence(runs, verdicts)


def _distances(runs: Runs) -> Distances:
    """Measure each tensor but the parameters in both twins; nothing in float64, which has none."""
    if runs.dtype == "float64":
        return {}
    shared = [site for site in runs.jax.sites() if site.level in LEVELS and site in runs.torch]
    return {site: runs.distances(site) for site in shared if site.level != "parameters"}


def _mean(errors: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return the root mean squares of the twins' distances in several runs."""
    jax, torch = (math.hypot(*each) / math.sqrt(len(each)) for each in zip(*errors, strict=True))
    return jax, torch


def _bounded(runs: Runs, judged: Judged) -> bool:
    """Return whether a tensor is within its limit if the other twin is left out of account."""
    return judged.error <= LIMITS[runs.dtype][judged.site.level] * epsilon(runs.dtype)


def _verdicts(runs: Runs, measured: Distances) -> dict[Site, Judged]:
    """Judge every tensor, level by level."""
    verdicts = {}
    for level in LEVELS:
        sites = _merged(_of(runs.jax, level), _of(runs.torch, level))
        floor = _floor(runs, level, measured)
        verdicts.update({site: _judge(runs, site, measured, floor) for site in sites})
    return verdicts


def _of(run: Recording, level: Level) -> list[Site]:
    return [site for site in run.sites() if site.level == level]


def _merged(a: list[Site], b: list[Site]) -> list[Site]:
    """Merge two orders of sites: a site that only `b` has stands where `b` has it."""
    shared, rest = set(b), iter(b)
    merged: list[Site] = []
    for site in a:
        if site in shared:
            merged += takewhile(lambda other, site=site: other != site, rest)
        merged.append(site)
    return list(dict.fromkeys((*merged, *rest)))


def _floor(runs: Runs, level: Level, measured: Distances) -> float:
    """Return the lower bound that distances of this level count as.

    Gradients share what happened to a few images: at least their median, in the twin in which it is
    smaller. They are sums over all tokens of the batch: at least the round-off of such sums. The
    loss of a small batch can be right by luck: at least the distance of the logits.
    """
    if level == "loss":
        return min(measured.get(output_site("logits"), (0.0,)))
    gradients = [errors for site, errors in measured.items() if site.level == level == "gradients"]
    if not gradients:
        return 0.0
    typical = min(median(side) for side in zip(*gradients, strict=True))
    tokens = sum(
        math.prod(runs.jax.read(site).shape[:2])  # (B, N or P, D)
        for site in map(output_site, ("prefix_tokens", "patch_tokens", "tokens"))
        if site in runs.jax
    )
    return max(typical, in_a_row(tokens))


def _judge(runs: Runs, site: Site, measured: Distances, floor: float) -> Judged:
    if site not in runs.jax or site not in runs.torch:
        return Judged.by(ABSENT, site, math.inf)
    if site.level == "parameters":
        return Judged.by(BITS, site, _bits(runs.jax.read(site), runs.torch.read(site)))
    if runs.dtype == "float64":
        return Judged.by(ROUNDING, site, error_of(runs.jax, runs.torch, site))
    if (error := error_of(runs.jax_float64, runs.torch_float64, site)) > FLOAT64:
        return Judged.by(ROUNDING, site, error)
    errors = measured[site]
    return Judged.by(_limit(runs, site, errors, floor), site, *errors)


def _bits(a: np.ndarray, b: np.ndarray) -> float:
    return 0.0 if same_bits(a, b) else relative_error(a, b) or math.inf


def _limit(runs: Runs, site: Site, errors: tuple[float, float], floor: float) -> Limit:
    return own_float64(
        errors,
        bound=LIMITS[runs.dtype][site.level],
        grain=epsilon(runs.dtype),
        numbers=runs.jax.read(site).size,
        floor=floor,
    )


def error_of(run: Recording, reference: Recording, site: Site) -> float:
    """Return the error of one tensor of a recording.

    A gradient or a moment of gradients may be measured on the joint scale of two parameters, see
    `beside`; a loss is measured on that of the logits, as the difference of two numbers of their size.
    """
    scale = None
    if site.stage in ("gradients", "moments") and (other := beside(site.path)):
        scale = reference.read(site._replace(path=other))
    if site.stage == "loss" and (logits := output_site("logits", site.step)) in reference:
        scale = np.abs(reference.read(logits)).max(axis=-1)
    return relative_error(run.read(site), reference.read(site), beside=scale)


def beside(path: str) -> str | None:
    """Return the parameter whose gradient is added to the scale of that of `path`; None for most.

    The bias of a key norm moves all keys alike, which softmax ignores: in theory its gradient is zero,
    and what is computed is the noise of its layer. The vectors of a differential lambda all share one
    scalar gradient, a sum over all tokens that may cancel; the gain of the heads' norm sums as much.
    """
    module, _, leaf = path.rpartition(".")
    if path.endswith("k_norm.bias"):
        return f"{module}.weight"
    return f"{module}.sub_norm.weight" if leaf.startswith("lambda_") else None


def _first_divergence(runs: Runs, verdicts: dict[Site, Judged]) -> FirstDivergence | None:
    """Return the first divergence among the modules' inputs and outputs, in the order of execution.

    An output that differs although the module's input agreed puts the fault in that module; an input
    that differs although everything before agreed puts it in the parent, between its children.
    """
    for site in _failed(verdicts, "modules"):
        if site not in runs.jax or site not in runs.torch:
            side = "JAX" if site in runs.jax else "PyTorch"
            return FirstDivergence(runs.dtype, site.path, f"called by the {side} twin only")
        if site.port == "in":
            parent = site.path.rpartition(".")[0]
            parent = "" if parent == "blocks" else parent  # a list of modules is never called
            return FirstDivergence(
                runs.dtype, parent, f"before its {site.path.removeprefix(parent + '.')} is called"
            )
        return FirstDivergence(runs.dtype, site.path, f"{site.port}: same input, different output")
    for level in ("parameters", "output", "loss"):
        for site in _failed(verdicts, level):
            return FirstDivergence(runs.dtype, site.name, f"every module agrees; {level} differ")
    for site in reversed(list(_failed(verdicts, "gradients"))):  # computed from the last to the first
        return FirstDivergence(runs.dtype, site.name, "every module agrees; gradients differ")
    return None


def _failed(verdicts: dict[Site, Judged], level: Level) -> Iterator[Site]:
    return (site for site, each in verdicts.items() if site.level == level and not each.passed)
