"""Search for the operations of a program for which a smaller floating-point type is too small."""

from parity.verifier.precision.bisect import Bisection, bisect_precision

__all__ = ["Bisection", "bisect_precision"]
