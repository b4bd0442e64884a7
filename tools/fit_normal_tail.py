"""Print the coefficients of `vit_jax/normal_tail.py` and the largest relative error of their polynomial.

Least squares of the relative error at Chebyshev's points, weighted by its size again and again (Lawson),
which comes near the smallest maximum.
"""

import numpy as np
from scipy.special import erfcx

from vit_jax.normal_tail import FARTHEST, SHIFT

DEGREE = 8


def fit() -> tuple[np.ndarray, float]:
    """Coefficients of G, lowest first, in r(a) = (1 - u) (1/2 + u G(u)) with u = a / (a + SHIFT)."""
    end = FARTHEST / (FARTHEST + SHIFT)
    nodes = np.cos(np.pi * (np.arange(500) + 0.5) / 500)
    u = end / 2 * (1 + nodes)
    a = SHIFT * u / (1 - u)
    wanted = erfcx(a / np.sqrt(2)) / 2 / (1 - u)  # 1/2 + u G(u)
    basis = np.polynomial.chebyshev.chebvander(nodes, DEGREE)
    weight, scale = np.ones_like(u), u / wanted
    for _ in range(200):
        rows = np.sqrt(weight) * scale
        found = np.linalg.lstsq(basis * rows[:, None], (wanted - 0.5) / u * rows, rcond=None)[0]
        error = np.abs(basis @ found - (wanted - 0.5) / u) * scale
        weight = weight * error / (weight * error).sum()
    series = np.polynomial.Chebyshev(found, domain=[0, end])
    power = series.convert(kind=np.polynomial.Polynomial, domain=[-1, 1], window=[-1, 1])
    return power.coef, float(error.max())


if __name__ == "__main__":
    coefficients, error = fit()
    print("\n".join(f"    {value:.9e}," for value in coefficients))
    print(f"relative error up to {error:.1e}")
