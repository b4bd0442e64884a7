"""Comparison of two recordings of training: modules are aligned, and tensors judged against rounding."""

from parity.measure.judged import Judged
from parity.verifier.recordings.align import Alignment, How, align
from parity.verifier.recordings.difference import Difference, compare_sides
from parity.verifier.recordings.judge import Divergence, StageComparison, Traces
from parity.verifier.recordings.sides import Recorded, recordings

__all__ = [
    "Alignment",
    "Difference",
    "Divergence",
    "How",
    "Judged",
    "Recorded",
    "StageComparison",
    "Traces",
    "align",
    "compare_sides",
    "recordings",
]
