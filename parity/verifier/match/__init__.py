"""Matching of the leaves of two models: by values, and by place."""

from parity.verifier.match.links import Arrangement, Grade, Link, Matched, Slices
from parity.verifier.match.match import match

__all__ = ["Arrangement", "Grade", "Link", "Matched", "Slices", "match"]
