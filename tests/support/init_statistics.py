"""Whether values are from a distribution, by limits that chance alone hardly ever exceeds."""

import math

import numpy as np
import torch

from vit_config.init import initial_draws
from vit_torch.leaves import leaves
from vit_torch.weights import abstract_model

RARE = 5.7e-7
"""The probability of five standard errors, the limit of every statistic here."""
REACH = math.sqrt(math.log(2 / RARE) / 2)
"""What sqrt(n) times Kolmogorov's statistic exceeds so rarely, at most, for every n (Massart 1990)."""


def describe(draw):
    """Mean, standard deviation, kurtosis, and the ends of a distribution."""
    if draw.kind == "uniform":
        return (draw.a + draw.b) / 2, (draw.b - draw.a) / math.sqrt(12), 1.8, draw.a, draw.b
    if draw.kind == "normal":
        return draw.a, draw.b, 3.0, -math.inf, math.inf
    cut = draw.bound / draw.b
    inside = math.erf(cut / math.sqrt(2))
    density = math.exp(-(cut**2) / 2) / math.sqrt(2 * math.pi)
    square = 1 - 2 * cut * density / inside
    fourth = 3 * square - 2 * cut**3 * density / inside
    spread = draw.b * math.sqrt(square)
    return draw.a, spread, fourth / square**2, draw.a - draw.bound, draw.a + draw.bound


def below(x, draw):
    """The probability of a value below `x`."""
    if draw.kind == "uniform":
        return (x - draw.a) / (draw.b - draw.a)
    share = torch.special.ndtr(torch.from_numpy((x - draw.a) / draw.b)).numpy()
    if draw.kind == "normal":
        return share
    outside = math.erfc(draw.bound / draw.b / math.sqrt(2)) / 2
    return (share - outside) / (1 - 2 * outside)


def kolmogorov(probabilities):
    """sqrt(n) times the largest distance of n values from uniform ones."""
    p, n = np.sort(probabilities), len(probabilities)
    return math.sqrt(n) * max(np.max(np.arange(1, n + 1) / n - p), np.max(p - np.arange(n) / n))


def misfit(values, draw):
    """What shows that values are not from a distribution; empty if nothing does."""
    if draw.kind == "rotary":
        return rotary_misfit(values, draw.a)
    x = np.asarray(values, np.float64).ravel()
    if draw.kind == "constant":
        return "" if np.all(x == np.float32(draw.a)) else f"not {draw.a}"
    mean, spread, kurtosis, low, high = describe(draw)
    n, slack = len(x), 1e-6 * spread
    if x.min() < low - slack or x.max() > high + slack:
        return f"in [{x.min()}, {x.max()}]"
    if draw.kind == "normal" and n * math.erfc(np.abs(x - mean).max() / spread / math.sqrt(2)) < RARE:
        return f"reaches {np.abs(x).max()}"
    p = below(x, draw)
    if n * max(p.min(), 1 - p.max()) > -math.log(RARE):
        return f"only in [{x.min()}, {x.max()}]"
    if abs(x.mean() - mean) > 5 * spread / math.sqrt(n):
        return f"mean {x.mean()}"
    if n > 1000 and abs(np.mean((x - mean) ** 2) / spread**2 - 1) > 5 * math.sqrt((kurtosis - 1) / n):
        return f"deviation {x.std()}, not {spread}"
    return f"Kolmogorov's statistic is {kolmogorov(p)}" if kolmogorov(p) > REACH else ""


def rotary_misfit(freqs, base):
    """Each pair of an axis' frequency and the other's: of fixed length, turned by one angle per head."""
    freqs = np.asarray(freqs, np.float64)
    along = freqs[0] + 1j * freqs[1]  # (..., h, d / 2)
    first, second = np.split(along, 2, axis=-1)
    length = base ** (-np.arange(first.shape[-1]) / first.shape[-1])
    if np.abs(second - 1j * first).max() > 1e-6:
        return "the second axis is not a quarter turn from the first"
    if np.abs(first / first[..., :1] - length).max() > 1e-5 or np.abs(abs(first) - length).max() > 1e-6:
        return "not the frequencies of fixed positions"
    turns = (np.angle(first[..., 0]) / (2 * np.pi)).ravel() % 1
    return "angles are not uniform" if kolmogorov(turns) > REACH else ""


def draws_of(cfg):
    parts = leaves(abstract_model(cfg))
    kinds = {leaf.name: leaf.kind for leaf in parts}
    return initial_draws(cfg, kinds, {leaf.name: leaf.shape for leaf in parts})


def misfits(cfg, models):
    """What is wrong with the parameters of several fresh models, by name or by distribution."""
    draws, problems, pools = draws_of(cfg), {}, {}
    assert all(arrays.keys() == draws.keys() for arrays in models)
    for name, shares in draws.items():
        parts = zip(*(np.split(arrays[name], len(shares)) for arrays in models), strict=True)
        for draw, values in zip(shares, parts, strict=True):
            axis = 1 if draw.kind == "rotary" else 0
            pooled = np.concatenate(values, axis)
            problems[name, draw] = misfit(pooled, draw)
            pools.setdefault(draw, []).append(pooled if axis else pooled.ravel())
    for draw, values in pools.items():
        problems["all of this distribution", draw] = misfit(np.concatenate(values, -1), draw)
    return {key: problem for key, problem in problems.items() if problem}
