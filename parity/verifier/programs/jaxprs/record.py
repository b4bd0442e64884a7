"""A JAX program, operation by operation: traced, walked, and held to what JAX computes.

Whatever number type the program asks for, it runs in float64: what remains to be compared is the
algebra.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from parity.measure.versions.of_jax import say_how_programs_are_read
from parity.verifier.programs import memory
from parity.verifier.programs.built import add_layers, layers_called
from parity.verifier.programs.jaxprs.checked import JaxRun, Seen
from parity.verifier.programs.jaxprs.rule_lines import own_lines
from parity.verifier.programs.jaxprs.values import cast, leaf_value, rounding_of
from parity.verifier.programs.jaxprs.walk import Walk, constant_of
from parity.verifier.programs.mistakes import mistake
from parity.verifier.programs.operation import Kind
from parity.verifier.programs.program import REFUSES, Program
from parity.verifier.programs.shared import shared


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
    recorder = Walk(Program(name), held or {})
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
                closed, shapes = _trace(recorder.program, function, trees, own, own_types)
            memory.check(memory.of_jaxpr(closed), "recording its operations")
            if dtype is not None:
                ran = jax.tree.leaves(jax.jit(function)(*trees))
                recorder.program.ran = [np.asarray(each).astype(np.float64) for each in ran]
        values = [each.value for each in leaves]
        # what is recorded in a type was recorded without one before, and checked then
        ran = JaxRun(closed, values) if dtype is None else None
        constants = [constant_of(recorder, each) for each in closed.consts]
        outputs = recorder.walk(closed.jaxpr, constants, leaves, None, "", "")
        names = [".".join(map(_key, path)) for path, _ in jax.tree_util.tree_leaves_with_path(shapes)]
        program = recorder.program
        add_layers(program, built)
        for path, each in zip(names, map(recorder.as_live, outputs), strict=True):
            program.outputs.append((path, each.index))
            program.keep(each.index, each.value, always=True)
        if ran is not None:
            pairs = [(path, program.cache[index]) for path, index in program.outputs]
            ran.check(pairs, partial(_walk_again, closed, values), name)
            program.notes += [ran.why_not] if ran.why_not else []
    return program


def _trace(program: Program, function: Callable[..., Any], wide: Any, given: Any, own_types: Any) -> Any:
    """Trace a function; return its jaxpr and the shapes of its results.

    A loop may refuse leaves in float64, if a module in it remembers the type of its parameters, and so
    may an author; then the function is traced in its own types, which are ignored when it runs.

    Args:
        program: the program whose notes say so, if an author refuses.
        function: the function to trace.
        wide: its arguments in float64.
        given: its arguments as they were given.
        own_types: a context in which these keep their types.
    """
    import jax

    make = jax.make_jaxpr(function, return_shape=True)
    try:
        return make(*wide)
    except Exception as error:
        with suppress(Exception), own_types:
            traced = make(*given)
            if not isinstance(error, TypeError):
                reason = mistake(error, function) or type(error).__name__
                program.notes.append(REFUSES.format(reason))
            return traced
        raise


def _wide(value: Any) -> Any:
    wide = leaf_value(value)
    return shared(wide) if isinstance(wide, np.ndarray) else wide


def _walk_again(closed: Any, values: Sequence[Any], seen: Seen) -> None:
    """Walk a program once more, and show its equations to a function."""
    recorder = Walk(Program(""), {})
    recorder.seen = seen
    leaves = [recorder.leaf("input", "", each) for each in values]
    constants = [constant_of(recorder, each) for each in closed.consts]
    recorder.walk(closed.jaxpr, constants, leaves, None, "", "")


def _key(entry: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)
