"""A program of JAX as it runs on a device: in its own types, compiled by XLA under its settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from parity.verifier.devices.step import MOVES, About, Run, Signature, Step, kinds_of, nudge
from parity.verifier.programs.callables import is_floating
from parity.verifier.programs.jaxprs.equations import bound
from parity.verifier.programs.jaxprs.side import call_of
from parity.verifier.programs.names import JAX_NAMES
from parity.verifier.programs.operation import Source
from parity.verifier.programs.sides import GivenSide
from parity.verifier.programs.sources import innermost
from vit_config import ConfigError

INSIDE = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call",
          "custom_vjp_call_jaxpr", "checkpoint", "remat2")  # fmt: skip
"""Primitives that hold a program, which is looked into, as are scans and branches; a while loop is one
operation."""
PROGRAMS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
DRAWS = ("random_bits", "rng_bit_generator", "rng_uniform")
ATTRIBUTES = 60
"""Most characters of an operation's axes and flags that are kept."""


def run(given: GivenSide, device: str) -> Run:
    """Run a program whole, as `jax.jit` compiles it, and again operation by operation.

    Raises:
        ConfigError: there is no such device.
    """
    import jax

    try:
        place = jax.devices(device or None)[0]
    except RuntimeError as error:
        raise ConfigError(f"device {device}: {str(error).splitlines()[0]}") from None
    with jax.default_device(place):
        call, trees, _ = call_of(given.function, given.variables, given.args, given.kwargs, given.bound)
        if given.promises_more:
            trees = _of_weights(trees)
        leaves, structure = jax.tree.flatten([tree for _, _, tree in trees])
        leaves = [jax.device_put(each, place) for each in leaves]
        compiled = jax.jit(call)

        def outputs(leaves: Sequence[Any]) -> list[tuple[str, np.ndarray]]:
            with jax.default_device(place):
                made = compiled(*jax.tree.unflatten(structure, leaves))
            found = jax.tree_util.tree_leaves_with_path(made)
            return [(jax.tree_util.keystr(path), np.asarray(each)) for path, each in found]

        whole = outputs(leaves)
        closed = jax.make_jaxpr(call)(*jax.tree.unflatten(structure, leaves))
        steps: list[Step] = []
        _walk(closed.jaxpr, closed.consts, leaves, None, place, steps)

    def nudged(seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        moved = [
            jax.device_put(nudge(each, rng), place) if "float" in str(each.dtype) else each  # no key
            for each in leaves
        ]
        return [each for _, each in outputs(moved)]

    flags = os.environ.get("XLA_FLAGS", "")
    about = About("jax", jax.__version__, f"{place.device_kind}{f', {flags}' if flags else ''}")
    return Run(about, steps, whole, nudged)


def _of_weights(trees: Sequence[tuple[Any, str, Any]]) -> list[tuple[Any, str, Any]]:
    """Return a preset's or a checkpoint's trees in the type that it is used in, and the images, too."""
    import jax

    parameters = jax.tree.leaves([tree for kind, _, tree in trees if kind == "parameter"])
    kinds = [each.dtype for each in parameters if is_floating(each)]
    own = "float32" if not kinds or kinds[0].name == "float64" else kinds[0].name
    cast = lambda each: np.asarray(each).astype(own) if is_floating(each) else each  # noqa: E731
    return [(kind, label, jax.tree.map(cast, tree)) for kind, label, tree in trees]


def _walk(
    jaxpr: Any, consts: Sequence[Any], operands: Sequence[Any], call: Source | None, place: Any,
    steps: list[Step],
) -> list[Any]:  # fmt: skip
    """Evaluate a jaxpr on a device, and append each operation that computes; return its results."""
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, operands, strict=True))
    for eqn in jaxpr.eqns:
        read = [each.val if hasattr(each, "val") else known[each] for each in eqn.invars]
        inner = next((eqn.params[each] for each in PROGRAMS if each in eqn.params), None)
        source = _line(eqn) or call
        if eqn.primitive.name == "scan":
            made = _scan(eqn.params, read, source, place, steps)
        elif eqn.primitive.name == "cond":
            branch = eqn.params["branches"][int(read[0])]
            made = _walk(branch.jaxpr, branch.consts, read[1:], source, place, steps)
        elif eqn.primitive.name in INSIDE and inner is not None:
            body = getattr(inner, "jaxpr", inner)
            made = _walk(body, getattr(inner, "consts", ()), read, source, place, steps)
        else:
            made = _bound(eqn, read)
            steps += _steps(eqn, read, made, source, place)
        known.update(zip(eqn.outvars, made, strict=True))
    return [each.val if hasattr(each, "val") else known[each] for each in jaxpr.outvars]


def _scan(
    params: dict[str, Any], read: Sequence[Any], call: Source | None, place: Any, steps: list[Step]
) -> list[Any]:
    """Evaluate a scan step by step."""
    from jax import numpy as jnp

    consts, count = params["num_consts"], params["num_carry"]
    fixed, carry, over = read[:consts], read[consts : consts + count], read[consts + count :]
    body, out = params["jaxpr"], []
    turns = range(params["length"])
    for i in reversed(turns) if params["reverse"] else turns:
        rows = [each[i] for each in over]
        made = _walk(body.jaxpr, body.consts, [*fixed, *carry, *rows], call, place, steps)
        carry = made[:count]
        out.append(made[count:])
    out = out[::-1] if params["reverse"] else out
    return [*carry, *(jnp.stack(each) for each in zip(*out, strict=True))]


def _bound(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    made = bound(eqn.primitive, eqn.params, operands)
    return list(made) if eqn.primitive.multiple_results else [made]


def _steps(
    eqn: Any, read: Sequence[Any], made: Sequence[Any], source: Source | None, place: Any
) -> Iterator[Step]:
    """Yield the operation, unless it only moves numbers, makes none, or handles keys."""
    own: str = eqn.primitive.name
    name = JAX_NAMES.get(own, own)
    if name in MOVES or any("key<" in str(each.aval) for each in (*eqn.outvars, *eqn.invars)):
        return
    operands, results = [[np.asarray(each) for each in side] for side in (read, made)]
    if operands and any(map(is_floating, results)):
        flags = {k: v for k, v in eqn.params.items() if isinstance(v, (int, float, str, tuple, bool))}
        said = ", ".join(f"{key}={value}" for key, value in flags.items())[:ATTRIBUTES]
        again = partial(_again, eqn, place)
        signature = Signature(name, kinds_of(operands), kinds_of(results), said)
        yield Step(signature, source, operands, results, again, draws=own in DRAWS)


def _again(eqn: Any, place: Any, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    import jax

    with jax.default_device(place):
        placed = [jax.device_put(each, place) for each in operands]
        return [np.asarray(each) for each in _bound(eqn, placed)]


def _line(eqn: Any) -> Source | None:
    traceback = eqn.source_info.traceback
    if traceback is None:
        return None
    return innermost((f.file_name, f.line_num, f.function_name) for f in traceback.frames)
