"""Comparison of two programs, operation by operation, down to the line of code where they part."""

from parity.verifier.operations.compare import compare, compare_programs
from parity.verifier.operations.comparison import Comparison, Counts, Line, Part, Place
from parity.verifier.operations.sides import record

__all__ = ["Comparison", "Counts", "Line", "Part", "Place", "compare", "compare_programs", "record"]
