"""Matching of the leaves of two files or traces."""

from __future__ import annotations

from pathlib import Path

from parity.measure.traces.reader import Trace, is_trace
from parity.verifier.match.leaves import Leaves, read_leaves
from parity.verifier.match.links import Matched
from parity.verifier.match.match import match_leaves
from parity.verifier.match.probe import probe


def match_paths(a: Path, b: Path) -> Matched:
    """Find which leaf of one file or trace is which leaf of another.

    In two traces, leaves that values do not decide are matched by what their modules computed.

    Raises:
        MissingFileError: there is nothing at a path.
        WeightsError: a file is damaged, or has no arrays.
    """
    ours, theirs = Leaves(read_leaves(a)), Leaves(read_leaves(b))
    matched = match_leaves(ours, theirs)
    if is_trace(a) and is_trace(b) and not matched.complete:
        return probe(matched, Trace(a), Trace(b), ours, theirs)
    return matched
