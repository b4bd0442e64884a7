"""Where two models differ: recorded, aligned, and judged against what rounding alone would do."""

from parity.diff.align import Alignment, How, align
from parity.diff.difference import Difference, compare_sides
from parity.diff.judge import Comparison, Divergence, Judged, Traces
from parity.diff.sides import InProcess, Recorded, Side
from parity.diff.subject import Subject, subject_of

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
