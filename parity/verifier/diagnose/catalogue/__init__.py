"""Every known way to compute what a module of a Vision Transformer computes, one module per kind."""

from __future__ import annotations

from collections.abc import Iterator

from parity.verifier.diagnose.catalogue import (
    activation,
    attention,
    attention_pool,
    convolution,
    dropout,
    linear,
    norm,
    pixels,
    pooling,
    relative,
    sums,
    tokens,
)
from parity.verifier.diagnose.catalogue.computation import Computation, hypotheses_of
from parity.verifier.diagnose.segment import Hypothesis, Segment

MODULES = (
    activation,
    norm,
    linear,
    attention,
    attention_pool,
    sums,
    relative,
    dropout,
    pixels,
    convolution,
    tokens,
    pooling,
)


def computations(segment: Segment) -> Iterator[Computation]:
    """Every computation that a segment may be, by the tensors and parameters it has."""
    for module in MODULES:
        yield from module.computations(segment)


def by_module(segment: Segment) -> Iterator[Iterator[Computation]]:
    """The same, a module at a time; what fits a number to the result comes last in its module."""
    for module in MODULES:
        yield module.computations(segment)


def hypotheses(segment: Segment) -> Iterator[Hypothesis]:
    """Every way in which the segment's result may have been computed, with what would then come out."""
    return hypotheses_of(computations(segment))
