"""Transfers between devices in a compiled program, with its loops, read from its text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)
_BITS = {"pred": 8, "bf16": 16}
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.+?) ([a-z][a-z0-9\-]*)\((.*)$")
_CALLED = re.compile(r"(body|condition|to_apply|calls|called_computations)=\{?%?([\w.\-]+)")
_SHAPE = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]")
_TRIPS = re.compile(r'"?known_trip_count"?[:=]\s*\{\s*"?n"?:\s*"?(\d+)')


class Transfers(NamedTuple):
    """All transfers of one kind in one execution."""

    count: int  # pyright: ignore[reportIncompatibleMethodOverride]
    nbytes: int
    """Bytes of the results on one device."""


class _Instruction(NamedTuple):
    name: str
    shape: str
    opcode: str
    rest: str


def transfers(text: str) -> dict[str, Transfers]:
    """Count the collectives of a compiled program by kind, each as often as its loop runs it.

    An all-reduce of which each device keeps only its part, as TPUs have it in one fusion, counts as
    a reduce-scatter.
    """
    computations = _parse(text)
    totals: dict[str, Transfers] = {}
    for name, times in _executions(text, computations).items():
        for each in computations[name]:
            kind = each.opcode.removesuffix("-start")
            if kind not in COLLECTIVES:
                continue
            nbytes = shape_bytes(each.shape)
            if each.opcode.endswith("-start") and each.shape.startswith("("):  # (operand, result, ...)
                parts = [shape_bytes(part[0]) for part in _SHAPE.finditer(each.shape)]
                nbytes = nbytes if kind == "all-reduce" else max(parts)
            if kind == "all-reduce" and "all-reduce-scatter" in name:
                root = computations[name][-1]
                kind, nbytes = "reduce-scatter", shape_bytes(root.shape)
            before = totals.get(kind, Transfers(0, 0))
            totals[kind] = Transfers(before.count + times, before.nbytes + times * nbytes)
    return totals


def shape_bytes(shape: str) -> int:
    """Count the bytes of a shape, such as ``f32[8,16]{1,0}``, or of a tuple of them, without padding."""
    total = 0
    for kind, sizes in _SHAPE.findall(shape):
        digits = re.search(r"\d+", kind)
        if kind not in _BITS and (kind[0] not in "fsuc" or digits is None):
            continue  # a token
        bits = _BITS.get(kind) or int(digits[0] if digits else 0)
        total += math.prod(int(size) for size in sizes.split(",") if size) * bits // 8
    return total


def _parse(text: str) -> dict[str, list[_Instruction]]:
    computations: dict[str, list[_Instruction]] = {}
    current: list[_Instruction] | None = None
    for line in text.splitlines():
        if match := _COMPUTATION.match(line):
            current = computations.setdefault(match[1], [])
        elif line.startswith("}"):
            current = None
        elif current is not None and (match := _INSTRUCTION.match(line)):
            current.append(_Instruction(match[1], match[2], match[3], match[4]))
    return computations


def _executions(text: str, computations: Mapping[str, list[_Instruction]]) -> dict[str, int]:
    """Count how often each computation runs; a loop whose length is not known counts once."""
    entry = re.search(r"^ENTRY %?([\w.\-]+)", text, re.MULTILINE)
    times = dict.fromkeys(computations, 0)

    def visit(name: str, count: int) -> None:
        times[name] += count
        for called, often in _calls(computations[name], computations):
            if called in computations:
                visit(called, count * often)

    if entry:
        visit(entry[1], 1)
    return times


def _calls(
    instructions: list[_Instruction], computations: Mapping[str, list[_Instruction]]
) -> Iterator[tuple[str, int]]:
    for each in instructions:
        often = _trips(each, computations) if each.opcode == "while" else 1
        for role, called in _CALLED.findall(each.rest):
            yield called, often if role == "body" else 1


def _trips(loop: _Instruction, computations: Mapping[str, list[_Instruction]]) -> int:
    """Return how often a loop runs: XLA's own note, or the limit it counts to, from zero; 1 if
    neither is found."""
    if match := _TRIPS.search(loop.rest):
        return int(match[1])
    condition = next((called for role, called in _CALLED.findall(loop.rest) if role == "condition"), "")
    limits = [
        int(each.rest.partition(")")[0])
        for each in computations.get(condition, ())
        if each.opcode == "constant" and each.shape.startswith("s32[]")
    ]
    return limits[0] if len(limits) == 1 else 1
