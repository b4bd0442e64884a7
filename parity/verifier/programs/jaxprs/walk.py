"""The walk of a jaxpr: each equation becomes an operation, through calls, loops and custom rules.

A ``jit``ted library function is traced once and cached with the lines of its first caller; the lines of
later callers come from the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from parity.verifier.programs.fingerprint import fingerprint
from parity.verifier.programs.jaxprs import loops, sharded
from parity.verifier.programs.jaxprs.checked import Seen
from parity.verifier.programs.jaxprs.equations import (
    apply_power,
    apply_rule,
    attributes,
    bind,
    called_jaxpr,
    keeps_numbers,
    last_reads,
    modules_of,
    pick,
    written_by_jax,
)
from parity.verifier.programs.jaxprs.mesh import Devices
from parity.verifier.programs.jaxprs.rules import RULES
from parity.verifier.programs.jaxprs.values import (
    leaf_value,
    literal,
    rounding_held,
    rounding_of,
    widened,
)
from parity.verifier.programs.names import JAX_NAMES, LAYOUT
from parity.verifier.programs.operation import BUILT, Kind, Operation, Ref, Source
from parity.verifier.programs.program import Program
from parity.verifier.programs.sources import innermost

DRAWS = ("random_bits", "random_gamma", "rng_bit_generator", "rng_uniform")
"""Primitives that make random numbers."""


def constant_of(recorder: Walk, value: Any) -> Any:
    """Record an array that a jaxpr holds, once for all jaxprs that do."""
    if id(value) not in recorder.constants:
        array, label = leaf_value(value), recorder.held.get(id(value), "constant")
        kind: Kind = "constant" if label == "constant" else "parameter"
        epsilon = rounding_of(getattr(value, "dtype", "float64")) or rounding_held(array)
        leaf = recorder.leaf(kind, label, array, epsilon)
        recorder.constants[id(value)] = value, leaf
    return recorder.constants[id(value)][1]


@dataclass(frozen=True)
class Live:
    """A value on its way to its readers; forgotten with the last of them."""

    index: int
    value: Any


class Walk:
    """A program being recorded, equation by equation; other rooms play loops and devices with it."""

    def __init__(self, program: Program, held: Mapping[int, str]) -> None:
        self.program, self.held = program, held
        self.constants: dict[int, tuple[Any, Live]] = {}
        """The arrays that jaxprs hold, by their `id`, and their leaves."""
        self.lines: dict[int, Source | None] = {}
        self.only: Source | None = None
        self.seen: Seen | None = None
        """Called with each equation that ran."""
        self.devices: Devices | None = None
        """The devices that run what is recorded, in a `shard_map`."""

    def leaf(self, kind: Kind, label: str, value: Any, epsilon: float = 0.0) -> Live:
        """Append a leaf."""
        return self.add(Operation(-1, kind, (), None, kind, label, epsilon=epsilon), value, always=True)

    def add(self, op: Operation, value: Any, *, always: bool = False) -> Live:
        """Append an operation with its value, which is kept within the budget, or always."""
        operands = tuple(Ref(each.index) if isinstance(each, Live) else each for each in op.operands)
        op = replace(op, index=len(self.program), operands=operands)
        self.program.operations.append(op)
        op.shape = () if isinstance(value, tuple) else tuple(np.shape(value))  # of several results
        op.dtype = str(getattr(value, "dtype", type(value).__name__))
        if isinstance(value, (np.ndarray, np.generic)):
            inherited = (
                self.program.operations[op.inputs[0]].mark if op.is_layout and op.inputs else None
            )
            op.mark = fingerprint(np.asarray(value)) if inherited is None else inherited
        self.program.keep(op.index, value, always=always)
        return Live(op.index, value)

    def as_live(self, each: Any) -> Live:
        """Return a result as a value; a number becomes a constant."""
        if isinstance(each, Live):
            return each
        return self.leaf("constant", "constant", np.asarray(each))

    def walk(
        self,
        jaxpr: Any,
        constants: Sequence[Any],
        inputs: Sequence[Any],
        call: Source | None,
        scope: str,
        module: str,
    ) -> list[Any]:
        """Run a jaxpr; operands and results are live values or numbers."""
        env: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
        env.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Any:
            return literal(atom.val) if hasattr(atom, "val") else env[atom]

        last = last_reads(jaxpr)
        for number, eqn in enumerate(jaxpr.eqns):
            operands = [read(each) for each in eqn.invars]
            line = self.line(eqn, call)
            inner = ".".join(filter(None, (module, modules_of(eqn))))
            results = self.equation(eqn, operands, line, scope, inner)
            if self.seen is not None:
                self.seen(eqn, [*map(value_of, operands)], [*map(value_of, results)], line)
            env.update(zip(eqn.outvars, results, strict=True))
            for variable in last.get(number, ()):
                env.pop(variable, None)
        return [read(each) for each in jaxpr.outvars]

    def equation(
        self, eqn: Any, operands: list[Any], line: Source | None, scope: str, module: str
    ) -> list[Any]:
        """Run an equation, of whatever kind it is."""
        name, params = eqn.primitive.name, eqn.params
        if name == "shard_map":
            return sharded.shard_map(self, params, operands, line, scope, module)
        if self.devices is not None:
            results = sharded.collective(self, eqn, operands, line, scope, module)
            if results is not None:
                return results
        if name == "scan":
            return loops.play_scan(self, params, operands, line, scope, module)
        if name == "while":
            return loops.play_while(self, params, operands, line, scope, module)
        if name == "cond":
            which = int(np.clip(self.decided(operands[0], line), 0, len(params["branches"]) - 1))
            return self.call(params["branches"][which], operands[1:], line, scope, module)
        inner = called_jaxpr(eqn)
        if inner is not None:
            if name not in ("scan", "checkpoint") and written_by_jax(inner):
                scope = str(params.get("name", "")).lstrip("_") or scope
                return self.fixed(inner, operands, line, scope, module)
            return self.call(inner, operands, line, scope, module)
        if name == "optimization_barrier":
            return operands
        return self.primitive(eqn, operands, line, scope, module)

    def call(
        self, inner: Any, operands: Sequence[Any], line: Source | None, scope: str, module: str
    ) -> list[Any]:
        """Run the jaxpr that an equation calls."""
        jaxpr = getattr(inner, "jaxpr", inner)
        constants = [constant_of(self, each) for each in getattr(inner, "consts", ())]
        if self.devices is not None:
            constants = [sharded.replicated(self, each) for each in constants]
        return self.walk(jaxpr, constants, operands, line, scope, module)

    def fixed(
        self, inner: Any, operands: Sequence[Any], line: Source | None, scope: str, module: str
    ) -> list[Any]:
        """Record a call of a function of JAX's: all of it belongs to the line of the call."""
        outer, self.only = self.only, self.only or line
        try:
            return self.call(inner, operands, line, scope, module)
        finally:
            self.only = outer

    def primitive(
        self, eqn: Any, operands: list[Any], line: Source | None, scope: str, module: str
    ) -> list[Any]:
        """Run an equation that calls no other, by its rule or by JAX."""
        import jax

        name, params = eqn.primitive.name, dict(eqn.params)
        values = [value_of(each) for each in operands]
        function = RULES.get(name)
        if function is None or any(isinstance(each, jax.Array) for each in values):
            run = partial(bind, eqn.primitive, {k: widened(v) for k, v in params.items()})
        else:
            read = {"old_dtype": eqn.invars[0].aval.dtype} if name == "bitcast_convert_type" else {}
            run = partial(apply_rule, function, params | read)
        common = str(JAX_NAMES.get(name, name))
        layout = common in LAYOUT or (common == "convert" and keeps_numbers(eqn))
        label, extra = attributes(name, params)
        epsilon = max(
            (rounding_of(v.aval.dtype) for v in eqn.outvars if hasattr(v.aval, "dtype")), default=0.0
        )
        if name == "convert_element_type" and line is not None:
            given = eqn.invars[0].aval.dtype
            if given.kind == "f" and rounding_of(given) < epsilon:
                self.program.narrowed.setdefault(line, str(params["new_dtype"]))
        if name in DRAWS:
            self.program.draws[str(line or name)] = None
        tuple_operands = tuple(operands)
        if common == "pow" and name == "integer_pow":
            tuple_operands, label = (operands[0], int(params["y"])), ""
            run = partial(apply_power, RULES[name], params)
            values.append(int(params["y"]))
        if self.devices is not None:
            run = sharded.on_each(self.devices, run, tuple_operands)
        op = Operation(-1, common, tuple_operands, run, "operation", label, line, module, scope,
                       is_layout=layout, epsilon=epsilon,
                       extra=extra)  # fmt: skip
        result = run(values)
        if not eqn.outvars:  # it prints, say, which it does once
            return []
        if not eqn.primitive.multiple_results:
            return [self.add(op, result)]
        whole = self.add(op, tuple(result))
        results = []
        for i, each in enumerate(result):
            op = Operation(
                -1, common, (whole,), partial(pick, i), "operation", f"[{i}]", line, module, scope
            )
            op.epsilon = epsilon
            results.append(self.add(op, each))
        return results

    def simple(
        self, name: str, operands: list[Any], run: Callable[..., Any], label: str, line: Source | None
    ) -> Live:
        """Append an operation that stands in no equation, such as a row of what a loop reads."""
        if self.devices is not None:
            run = sharded.on_each(self.devices, run, operands)
        value = run([value_of(each) for each in operands])
        return self.add(Operation(-1, name, tuple(operands), run, "operation", label, line), value)

    def decided(self, each: Any, line: Source | None) -> Any:
        """Return the number that decides on a branch; in a `shard_map`, one that all devices hold."""
        stacked = self.devices is not None and isinstance(each, Live)
        return sharded.one_for_all(each.value, line) if stacked else value_of(each)

    def line(self, eqn: Any, call: Source | None) -> Source | None:
        """Return the user's line of an equation: that of the call where it has none of its own."""
        traceback = eqn.source_info.traceback
        if self.only is not None or traceback is None:
            return self.only or call
        key = hash(traceback)
        if key not in self.lines:
            self.lines[key] = innermost(
                (f.file_name, f.line_num, f.function_name) for f in traceback.frames
            )
        source = self.lines[key]
        if source is not None and source.function == BUILT and source.caller is None:  # in a branch
            source = replace(source, caller=call.caller if call == source and call else call)
        return source or call


def value_of(each: Any) -> Any:
    """Return the value of an operand, which may be a number."""
    return each.value if isinstance(each, Live) else each
