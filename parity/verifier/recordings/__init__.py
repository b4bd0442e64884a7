"""Comparison of two recordings of training: tensors are paired, and judged against rounding."""

from parity.measure.judged import Judged
from parity.verifier.recordings.difference import Difference, compare_sides
from parity.verifier.recordings.judge import Divergence, StageComparison
from parity.verifier.recordings.pairs import Traces
from parity.verifier.recordings.sides import Recorded, recordings

__all__ = [
    "Difference",
    "Divergence",
    "Judged",
    "Recorded",
    "StageComparison",
    "Traces",
    "compare_sides",
    "recordings",
]
