"""Which leaf of one model is which leaf of another, by values, by place and by what modules compute."""

from parity.verifier.match.links import Arrangement, Grade, Link, Matched, Part
from parity.verifier.match.match import match

__all__ = ["Arrangement", "Grade", "Link", "Matched", "Part", "match"]
