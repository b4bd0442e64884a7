"""LayerNorm and RMSNorm: epsilon, variance, gain, bias, centring."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from parity.measure.tolerance import epsilon
from parity.verifier.diagnose.catalogue.computation import Aspect, Computation, Option, Values
from parity.verifier.diagnose.catalogue.tensors import BIAS, GAIN, is_named, sources, vector
from parity.verifier.diagnose.segment import Segment

COMMON = (1e-6, 1e-5, 1e-12, 1e-3, 1e-8, 0.0)


def computations(segment: Segment) -> Iterator[Computation]:
    """A norm over the last axis: gain * (x - mean) / sqrt(variance + epsilon) + bias."""
    size = segment.result.shape[-1] if segment.result.ndim else 0
    same = [x for _, x in sources(segment) if x.shape == segment.result.shape]
    gain, bias = vector(segment, size, GAIN), vector(segment, size, BIAS)
    known = (gain is not None) + (bias is not None)
    if not same or segment.children or known != len(segment.parameters):
        return
    if not known and not is_named(segment, "norm"):
        return
    norm = _Norm(segment, same[0], gain, bias)
    yield Computation("norm", norm.aspects(), norm.compute)


class _Norm:
    def __init__(
        self, segment: Segment, x: np.ndarray, gain: np.ndarray | None, bias: np.ndarray | None
    ) -> None:
        self.segment, self.x, self.gain, self.bias = segment, x, gain, bias
        self.root_mean_square = bool(re.search("rms", segment.module.name.lower()))
        self.mean = x.mean(axis=-1, keepdims=True)
        self.variance = x.var(axis=-1, keepdims=True)
        self.square = np.mean(x**2, axis=-1, keepdims=True)

        self.mean = self._rounded_mean()

    def aspects(self) -> tuple[Aspect, ...]:
        """The independent choices."""
        removed, kept = Option("mean removed", True), Option("mean not removed", False)
        variance = (
            Option("variance E[(x - E[x])^2]", "two", jax="nnx.LayerNorm(..., use_fast_variance=False)"),
            Option(
                f"variance E[x^2] - E[x]^2 in {self.segment.dtype}",
                "one",
                jax="nnx.LayerNorm(..., use_fast_variance=True)",
            ),
            Option(
                "variance divided by n - 1",
                "unbiased",
                torch="x.var(-1, unbiased=True)",
                jax="x.var(-1, ddof=1)",
            ),
        )
        gain = (
            Option("gain w", 0.0),
            Option("gain 1 + w", 1.0),
            Option("gain not applied", None, "missing-gain"),
        )
        bias = (Option("bias added", 1), Option("bias not added", 0), Option("bias added twice", 2))
        applied = (
            Option("norm applied", 1, torch="self.norm(x)", jax="self.norm(x)"),
            Option("norm left out", 0),
            Option("norm applied twice", 2),
        )
        return (
            Aspect(
                "centre", "norm-centring", (kept, removed) if self.root_mean_square else (removed, kept)
            ),
            Aspect("epsilon", "norm-epsilon", self._epsilons()),
            Aspect("variance", "norm-variance", variance),
            Aspect("root", "norm-epsilon-place", _ROOTS),
            Aspect("gain", "norm-gain", gain if self.gain is not None else gain[2:]),
            Aspect("bias", "norm-bias", bias if self.bias is not None else bias[1:2]),
            Aspect("norm", "missing-norm", applied),
            Aspect(
                "axis", "norm-axis", (Option("over the last axis", -1), Option("over the tokens", -2))
            ),
        )

    def _epsilons(self) -> tuple[Option, ...]:
        said = self.segment.fact(
            "eps", "epsilon", "layer_norm_eps", "layer_norm_epsilon", "variance_epsilon"
        )
        values = [said] if isinstance(said, float) else []
        values += [each for each in COMMON if each not in values]
        fitted = self._fitted(self.root_mean_square)
        if fitted and all(abs(fitted - each) > 1e-3 * each for each in values):
            values.append(fitted)
        return tuple(
            Option(
                f"epsilon {value:.4g}",
                value,
                torch=f"nn.LayerNorm(..., eps={value:.4g})",
                jax=f"nnx.LayerNorm(..., epsilon={value:.4g})",
            )
            for value in values
        )

    def _fitted(self, root_mean_square: bool) -> float | None:
        """The epsilon that explains every row best: each row's scale r gives 1 / r^2 - variance."""
        spread = self.square if root_mean_square else self.variance
        scale = self._scales(self.x if root_mean_square else self.x - self.mean)
        with np.errstate(all="ignore"):
            found, weight = 1.0 / scale**2 - spread, 1.0 / spread**2
            value = float((found * weight).sum() / weight.sum())
        return value if np.isfinite(value) and value > 0 else None

    def _scales(self, centred: np.ndarray) -> np.ndarray:
        """What each row was multiplied by, by least squares: (..., 1)."""
        directions = centred * (1.0 if self.gain is None else self.gain)
        values = self.segment.result - (0.0 if self.bias is None else self.bias)
        with np.errstate(all="ignore"):
            return (values * directions).sum(-1, keepdims=True) / (directions**2).sum(-1, keepdims=True)

    def _rounded_mean(self) -> np.ndarray:
        """The mean that was subtracted from each row: the true one, but for its own rounding.

        Of values far from zero, the sum in a narrow type is off by more than the deviations' rounding,
        by one number per row, in whatever order it was taken. That number is what the result implies: in
        gain * (x - mean) * r + bias, what it adds along r * gain.
        """
        if epsilon(self.segment.dtype) <= epsilon("float64"):
            return self.mean
        gain = np.ones(self.x.shape[-1]) if self.gain is None else self.gain
        values = self.segment.result - (0.0 if self.bias is None else self.bias)
        along = np.stack(np.broadcast_arrays((self.x - self.mean) * gain, gain), -1)  # (..., D, 2)
        with np.errstate(all="ignore"):
            gram = along.swapaxes(-1, -2) @ along
            if not (np.linalg.cond(gram) < 1e12).all():
                return self.mean
            scale, shift = np.moveaxis(
                np.linalg.solve(gram, along.swapaxes(-1, -2) @ values[..., None])[..., 0], -1, 0
            )
            off = -(shift / scale)[..., None]
        most = 4.0 * epsilon(self.segment.dtype) * np.sqrt(self.square)
        return self.mean + off if (np.abs(off) <= most).all() else self.mean

    def compute(self, v: Values) -> np.ndarray | None:
        """The result under a choice."""
        x = self.x
        for _ in range(v["norm"]):
            found = self._once(x, v)
            if found is None:
                return None
            x = found
        return x

    def _once(self, x: np.ndarray, v: Values) -> np.ndarray | None:
        axis, count = v["axis"], x.shape[v["axis"]] if x.ndim >= -v["axis"] else 0
        if not count:
            return None
        mean = self.mean if x is self.x and axis == -1 else x.mean(axis=axis, keepdims=True)
        centred = x - mean if v["centre"] else x
        variance = np.mean(centred**2, axis=axis, keepdims=True)
        if v["variance"] == "unbiased":
            if count == 1:
                return None
            variance = variance * (count / (count - 1))
        elif v["variance"] == "one":
            found = self._one_pass(v)
            if found is None:
                return None
            variance = found
        y = centred / v["root"](variance, v["epsilon"])
        if v["gain"] is not None and self.gain is not None:
            y = y * (self.gain + v["gain"])
        return y if self.bias is None else y + v["bias"] * self.bias

    def _one_pass(self, v: Values) -> np.ndarray | None:
        """The variance of each row that the result implies, if cancellation explains its error.

        The error depends on the order of summation, so it cannot be computed again; but it is no larger
        than a few roundings of E[x^2], and it is one number per row.
        """
        if (
            not v["centre"]
            or v["axis"] != -1
            or v["norm"] != 1
            or (v["gain"] is None and self.gain is not None)
        ):
            return None
        implied = 1.0 / self._scales(self.x - self.mean) ** 2 - v["epsilon"]
        error = np.abs(implied - self.variance)
        bound = 8 * epsilon(self.segment.dtype) * self.square
        if not (error <= bound).all() or not (error > epsilon(self.segment.dtype) * self.variance).any():
            return None
        return implied


_ROOTS = (
    Option("epsilon inside the root", lambda variance, eps: np.sqrt(variance + eps)),
    Option("epsilon added to the deviation", lambda variance, eps: np.sqrt(variance) + eps),
    Option("deviation at least epsilon", lambda variance, eps: np.maximum(np.sqrt(variance), eps)),
    Option("variance at least epsilon", lambda variance, eps: np.sqrt(np.maximum(variance, eps))),
)
