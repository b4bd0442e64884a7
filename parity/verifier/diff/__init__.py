"""Where two models differ: recorded, aligned, and judged against what rounding alone would do."""

from parity.measure.judged import Judged
from parity.verifier.diff.align import Alignment, How, align
from parity.verifier.diff.difference import Difference, compare_sides
from parity.verifier.diff.judge import Comparison, Divergence, Traces
from parity.verifier.diff.sides import InProcess, Recorded, Side
from parity.verifier.diff.subject import Subject, subject_of

__all__ = [
    "Alignment",
    "Comparison",
    "Difference",
    "Divergence",
    "How",
    "InProcess",
    "Judged",
    "Recorded",
    "Side",
    "Subject",
    "Traces",
    "align",
    "compare_sides",
    "subject_of",
]
