"""Two programs compared operation by operation: where they stop meeting, on the line of code."""

from parity.verifier.operations.compare import compare, compare_programs
from parity.verifier.operations.comparison import Comparison, Counts, Line, Part, Place
from parity.verifier.operations.sides import record

__all__ = ["Comparison", "Counts", "Line", "Part", "Place", "compare", "compare_programs", "record"]
