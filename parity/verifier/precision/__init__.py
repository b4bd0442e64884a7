"""A program in a smaller floating point type: which of its operations the type is too small for."""

from parity.verifier.precision.bisect import Bisection, bisect_precision

__all__ = ["Bisection", "bisect_precision"]
