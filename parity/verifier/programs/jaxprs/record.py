"""A JAX program, operation by operation: its jaxpr, walked through calls, loops and custom rules.

Whatever number type the program asks for, it runs in float64: what remains to be compared is the
algebra. A ``jit``ted library function is traced once and cached with the lines of its first caller; the
lines of later callers come from the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from parity.measure.versions.of_jax import say_how_programs_are_read
from parity.verifier.programs import memory
from parity.verifier.programs.built import add_layers, layers_called
from parity.verifier.programs.fingerprint import fingerprint
from parity.verifier.programs.jaxprs import loops, sharded
from parity.verifier.programs.jaxprs.checked import Seen, check
from parity.verifier.programs.jaxprs.equations import (
    apply_power,
    apply_rule,
    attributes,
    bind,
    called,
    keeps_numbers,
    last_reads,
    modules_of,
    pick,
    written_by_jax,
)
from parity.verifier.programs.jaxprs.mesh import Devices
from parity.verifier.programs.jaxprs.rule_lines import own_lines
from parity.verifier.programs.jaxprs.rules import RULES
from parity.verifier.programs.jaxprs.tracing import trace
from parity.verifier.programs.jaxprs.values import cast, leaf_value, literal, rounding_of, widened
from parity.verifier.programs.names import JAX_NAMES, LAYOUT
from parity.verifier.programs.operation import BUILT, Kind, Operation, Ref, Source
from parity.verifier.programs.program import Program
from parity.verifier.programs.shared import shared
from parity.verifier.programs.sources import innermost

DRAWS = ("random_bits", "random_gamma", "rng_bit_generator", "rng_uniform")
"""Primitives that make random numbers."""


def record_jax(
    function: Callable[..., Any],
    arguments: Sequence[tuple[Kind, str, Any]],
    name: str = "B",
    dtype: str | None = None,
    held: Mapping[int, str] | None = None,
) -> Program:
    """Run a function and record it.

    Args:
        function: a pure function of the trees in `arguments`.
        arguments: for each argument, the kind of its leaves, the prefix of their paths, and the tree.
        name: what the program is called.
        dtype: trace it on leaves of this floating point type, so that every operation is known to want
            the type that it has there; its values are in float64 all the same.
        held: paths of arrays that the function uses without being given them, by their `id`.
    """
    import jax

    say_how_programs_are_read()
    recorder = _Recorder(Program(name), held or {})
    own_types = jax.enable_x64(bool(jax.config.read("jax_enable_x64")))
    with jax.enable_x64(True):
        trees, leaves = [], []
        for kind, prefix, tree in arguments:
            paths, structure = jax.tree_util.tree_flatten_with_path(tree)
            given = [_wide(value) if dtype is None else cast(value, dtype) for _, value in paths]
            trees.append(jax.tree.unflatten(structure, given))
            for (path, original), each in zip(paths, given, strict=True):
                value = leaf_value(each)
                label = ".".join(filter(None, (prefix, *map(_key, path))))
                leaves.append(
                    recorder.leaf(kind, label, value, rounding_of(getattr(original, "dtype", "float64")))
                )
        with jax.enable_x64(dtype is None):
            with own_lines(), layers_called() as built:
                own = [tree for _, _, tree in arguments]
                closed, shapes = trace(recorder.program, function, trees, own, own_types)
            memory.check(memory.of_jaxpr(closed), "recording its operations")
            if dtype is not None:
                ran = jax.tree.leaves(jax.jit(function)(*trees))
                recorder.program.ran = [np.asarray(each).astype(np.float64) for each in ran]
        constants = [_constant(recorder, each) for each in closed.consts]
        outputs = recorder.walk(closed.jaxpr, constants, leaves, None, "", "")
        values = [each.value for each in leaves]
        names = [".".join(map(_key, path)) for path, _ in jax.tree_util.tree_leaves_with_path(shapes)]
        program = recorder.program
        add_layers(program, built)
        for path, each in zip(names, map(recorder.as_live, outputs), strict=True):
            program.outputs.append((path, each.index))
            program.keep(each.index, each.value, always=True)
        if dtype is None:  # or the program was recorded without a type before, and checked
            pairs = [(path, program.cache[index]) for path, index in program.outputs]
            why = check(closed, values, pairs, partial(_walk_again, closed, values), name)
            program.notes += [why] if why else []
    return program


def _wide(value: Any) -> Any:
    wide = leaf_value(value)
    return shared(wide) if isinstance(wide, np.ndarray) else wide


def _walk_again(closed: Any, values: Sequence[Any], seen: Seen) -> None:
    """Walk a program once more, and show its equations to a function."""
    recorder = _Recorder(Program(""), {})
    recorder.seen = seen
    leaves = [recorder.leaf("input", "", each) for each in values]
    constants = [_constant(recorder, each) for each in closed.consts]
    recorder.walk(closed.jaxpr, constants, leaves, None, "", "")


def _key(entry: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def _constant(recorder: _Recorder, value: Any) -> Any:
    """Record an array that a jaxpr holds, once for all jaxprs that do."""
    if id(value) not in recorder.constants:
        array, label = leaf_value(value), recorder.held.get(id(value), "constant")
        kind: Kind = "constant" if label == "constant" else "parameter"
        leaf = recorder.leaf(kind, label, array, rounding_of(getattr(value, "dtype", "float64")))
        recorder.constants[id(value)] = value, leaf
    return recorder.constants[id(value)][1]


@dataclass(frozen=True)
class _Live:
    """A value on its way to its readers; forgotten with the last of them."""

    index: int
    value: Any


class _Recorder:
    def __init__(self, program: Program, held: Mapping[int, str]) -> None:
        self.program, self.held = program, held
        self.constants: dict[int, tuple[Any, _Live]] = {}
        """The arrays that jaxprs hold, by their `id`, and their leaves."""
        self.lines: dict[int, Source | None] = {}
        self.only: Source | None = None
        self.seen: Seen | None = None
        """Called with each equation that ran."""
        self.devices: Devices | None = None
        """The devices that run what is recorded, in a `shard_map`."""

    def leaf(self, kind: Kind, label: str, value: Any, epsilon: float = 0.0) -> _Live:
        return self.add(Operation(-1, kind, (), None, kind, label, epsilon=epsilon), value, always=True)

    def add(self, op: Operation, value: Any, *, always: bool = False) -> _Live:
        operands = tuple(Ref(each.index) if isinstance(each, _Live) else each for each in op.operands)
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
        return _Live(op.index, value)

    def as_live(self, each: Any) -> _Live:
        if isinstance(each, _Live):
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
                self.seen(eqn, [*map(_value, operands)], [*map(_value, results)], line)
            env.update(zip(eqn.outvars, results, strict=True))
            for variable in last.get(number, ()):
                env.pop(variable, None)
        return [read(each) for each in jaxpr.outvars]

    def equation(
        self, eqn: Any, operands: list[Any], line: Source | None, scope: str, module: str
    ) -> list[Any]:
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
        inner = called(eqn)
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
        jaxpr = getattr(inner, "jaxpr", inner)
        constants = [_constant(self, each) for each in getattr(inner, "consts", ())]
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
        import jax

        name, params = eqn.primitive.name, dict(eqn.params)
        values = [_value(each) for each in operands]
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
    ) -> _Live:
        if self.devices is not None:
            run = sharded.on_each(self.devices, run, operands)
        value = run([_value(each) for each in operands])
        return self.add(Operation(-1, name, tuple(operands), run, "operation", label, line), value)

    def decided(self, each: Any, line: Source | None) -> Any:
        """Return the number that decides on a branch; in a `shard_map`, one that all devices hold."""
        stacked = self.devices is not None and isinstance(each, _Live)
        return sharded.one_for_all(each.value, line) if stacked else _value(each)

    def line(self, eqn: Any, call: Source | None) -> Source | None:
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


def _value(each: Any) -> Any:
    return each.value if isinstance(each, _Live) else each
