"""Loops of a jaxpr, walked step by step.

Each is given the recorder, the equation's parameters and operands, its line, scope and module.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from parity.measure.versions.of_jax import read_scan
from parity.verifier.programs.jaxprs.equations import row_of, stack
from parity.verifier.programs.operation import Source


def play_scan(
    recorder: Any, p: Any, operands: list[Any], line: Source | None, scope: str, module: str
) -> list[Any]:
    """Run every step of a scan; what it runs over is sliced, its outputs are stacked."""
    scan = read_scan(p)
    fixed, carried = scan.constants, scan.carried
    constants, carry, rows = (
        operands[:fixed],
        operands[fixed : fixed + carried],
        operands[fixed + carried :],
    )
    steps = range(scan.length)
    results: list[list[Any]] = []
    for t in reversed(steps) if scan.is_reverse else steps:
        row = [recorder.simple("slice", [each], partial(row_of, t), f"[{t}]", line) for each in rows]
        out = recorder.call(scan.body, [*constants, *carry, *row], line, scope, module)
        carry = out[:carried]
        results.append(out[carried:])
    if scan.is_reverse:
        results.reverse()
    empty = scan.body.out_avals[carried:]
    stacked = [
        recorder.simple("stack", [each[k] for each in results], stack, "", line)
        if results
        else np.zeros((0, *aval.shape))
        for k, aval in enumerate(empty)
    ]
    return [*carry, *stacked]


def play_while(
    recorder: Any, p: Any, operands: list[Any], line: Source | None, scope: str, module: str
) -> list[Any]:
    """Run a while loop as often as its condition holds."""
    of_condition, of_body = p["cond_nconsts"], p["body_nconsts"]
    condition, body = operands[:of_condition], operands[of_condition : of_condition + of_body]
    carry = operands[of_condition + of_body :]
    while True:
        (go_on,) = recorder.call(p["cond_jaxpr"], [*condition, *carry], line, scope, module)
        if not bool(recorder.decided(go_on, line)):
            return list(carry)
        carry = recorder.call(p["body_jaxpr"], [*body, *carry], line, scope, module)
