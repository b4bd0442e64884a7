"""Matching of the leaves of two models: by values, by place, and by the results of modules."""

from parity.verifier.match.links import Arrangement, Grade, Link, Matched, Part
from parity.verifier.match.match import match

__all__ = ["Arrangement", "Grade", "Link", "Matched", "Part", "match"]
