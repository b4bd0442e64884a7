"""Matching what two files or traces hold."""

from __future__ import annotations

from pathlib import Path

from parity.measure.traces.reader import Trace, is_trace
from parity.verifier.match.leaves import Leaves, read_leaves
from parity.verifier.match.links import Matched
from parity.verifier.match.match import match_leaves
from parity.verifier.match.probe import probe


def match_paths(a: Path, b: Path) -> Matched:
    """Find which leaf of one file or trace is which leaf of another.

    Of two traces, leaves that their values do not tell are looked for by what the modules computed.

    Raises:
        MissingFileError: there is nothing at a path.
        WeightsError: damaged, or without arrays.
    """
    ours, theirs = Leaves(read_leaves(a)), Leaves(read_leaves(b))
    matched = match_leaves(ours, theirs)
    if is_trace(a) and is_trace(b) and not matched.complete:
        return probe(matched, Trace(a), Trace(b), ours, theirs)
    return matched
