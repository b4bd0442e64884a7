"""A StableHLO program as a function of JAX: each operation is one line of it, in the file's name.

The lines are compiled under the name of the file, so that what says where a value was computed says
``vit.stablehlo:12``, and shows the operation.
"""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from parity.exporting.stablehlo_graph.attributes import (
    PLAIN,
    TYPES,
    array_of,
    attributes_of,
    mlir_type,
    shape_of,
)
from parity.exporting.stablehlo_graph.operators import OPERATORS, array
from vit_config import ConfigError, InputError, MissingFileError, WeightsError

AS_ONE = ("erf", "erfc")
"""JAX's operations that it may write as many of StableHLO's: a polynomial in float32, in their place."""
PLATFORM, CASE = "_platform_index", "stablehlo.case"
COMPOSITES = frozenset(f"chlo.{name}" for name in PLAIN)
"""Operations that are written with another way to compute them, which is not looked at."""
ONE_OF_TWO = ("argmax", "argmin")
"""Operators of two results, of which the second is asked for."""
SKIPPED = ("shape_assertion",)
"""Calls that compute nothing."""


@jax.tree_util.register_pytree_node_class
class StablehloGraph:
    """A StableHLO program; its arrays of floating point are its parameters."""

    forward_only = "a StableHLO program runs forward only"
    """Why its gradients are compared with nobody's."""

    def __init__(self, constants: dict[str, Any], run: Any, types: Any, exported: Any) -> None:
        self._constants, self._run, self._types, self._exported = constants, run, types, exported

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the program on its inputs, in its own number types.

        Raises:
            InputError: they are other inputs than it takes.
        """
        exported = self._exported
        constants = {name: each.astype(self._types[name]) for name, each in self._constants.items()}
        given, avals = jax.tree.leaves((inputs, named)), exported.in_avals
        if not _fit(given, avals):
            raise InputError(
                f"{self._run.__code__.co_filename}: takes {_shapes(avals)}, and its inputs are"
                f" {_shapes(given)}"
            )
        given = [given[i].astype(avals[i].dtype) for i in exported.module_kept_var_idx]
        with np.errstate(all="ignore"):  # of constants
            results = [array(each) for each in self._run(constants, *given)]
        return jax.tree.unflatten(exported.out_tree, results)

    def tree_flatten(self) -> tuple[tuple[dict[str, Any]], tuple[Any, Any, Any]]:
        """Return the constants, and the rest."""
        return (self._constants,), (self._run, self._types, self._exported)

    @classmethod
    def tree_unflatten(
        cls, rest: tuple[Any, Any, Any], constants: tuple[dict[str, Any]]
    ) -> StablehloGraph:
        """Return a program that holds other arrays."""
        return cls(constants[0], *rest)


def _fit(given: list[Any], aval: Any) -> bool:
    """Return whether shapes are those that a program takes, where these are numbers."""
    return len(given) == len(aval) and all(
        len(x.shape) == len(of.shape)
        and all(n == m or not isinstance(m, int) for n, m in zip(x.shape, of.shape, strict=True))
        for x, of in zip(given, aval, strict=True)
    )


def _shapes(arrays: Any) -> str:
    """Say the shapes of some arrays."""
    return " and ".join(f"({', '.join(map(str, each.shape))})" for each in arrays) or "none"


def graph_of(path: str | Path) -> tuple[StablehloGraph, list[int]]:
    """Read what `jax.export` serialized, with the shape of its one input, 0 for each free length; empty
    if it has several inputs.

    Raises:
        MissingFileError: there is no such file.
        WeightsError: it is no such program.
        ConfigError: an operation that is not evaluated here.
    """
    from jax import export
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import chlo, sdy, stablehlo

    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file")
    try:
        exported = export.deserialize(bytearray(path.read_bytes()))
    except Exception as error:
        raise WeightsError(f"{path}: jax.export cannot read it ({error})") from None
    with ir.Context() as context:
        for dialect in (stablehlo, chlo, sdy):
            dialect.register_dialect(context)
        context.allow_unregistered_dialects = True
        module = stablehlo.deserialize_portable_artifact(context, exported.mlir_module_serialized)
        written = _Written(module, path, _platform(exported.platforms))
    text = [f"{line}\n" for line in written.lines]
    linecache.cache[str(path)] = (sum(map(len, text)), None, text, str(path))
    scope: dict[str, Any] = {f"{name}_": run for name, run in OPERATORS.items()} | written.small
    exec(compile("".join(text), str(path), "exec"), scope)
    types = {name: each.dtype for name, each in written.constants.items()}
    graph = StablehloGraph(written.constants, scope["graph"], types, exported)
    avals = exported.in_avals
    if len(avals) != 1 or np.dtype(avals[0].dtype).kind != "f":
        return graph, []
    return graph, [each if isinstance(each, int) else 0 for each in avals[0].shape]


def _platform(platforms: tuple[str, ...]) -> int:
    """Return the number of the platform whose branches are read: this machine's, if it is one."""
    here = jax.default_backend()
    return platforms.index(here) if here in platforms else 0


class _Written:
    """The lines of a program, and what they name."""

    def __init__(self, module: Any, path: Path, platform: int) -> None:
        self.constants: dict[str, np.ndarray] = {}
        self.small: dict[str, np.ndarray] = {}
        self.lines: list[str] = []
        self._path, self._functions = path, {each.name.value: each for each in module.body.operations}
        self._names: dict[Any, str] = {}
        self._whole: dict[Any, int] = {}  # whole numbers that are known here
        self._fixed: set[Any] = set()  # constants, and what is computed from them
        self._count, self._open = 0, ""  # the location of what is written as one,
        self._first: Any = None  # its first value,
        self._own: set[str] = set()  # and the names of what it reads and is
        main = self._functions["main"]
        given = ["w"]
        of_arguments = main.attributes["arg_attrs"] if main.arguments else ()
        for argument, own in zip(main.arguments, of_arguments, strict=True):
            if "jax.global_constant" in own and PLATFORM in str(own["jax.global_constant"]):
                self._whole[argument] = platform
            else:
                given.append(self._new(argument))
        self.lines.append(f"def graph({', '.join(given)}):")
        results = self._block(main.entry_block)
        self.lines.append(f"    return ({', '.join(map(self._name, results))},)")

    def _new(self, value: Any) -> str:
        self._count += 1
        self._names[value] = f"v{self._count}"
        return self._names[value]

    def _name(self, value: Any) -> str:
        if value not in self._names and value in self._whole:
            name = f"c{len(self.small)}"
            self.small[name] = np.array(self._whole[value], np.int32)
            self._names[value] = name
        return self._names[value]

    def _block(self, block: Any) -> list[Any]:
        """Write the operations of a block; returns what it returns."""
        for op in block.operations:
            op = op.operation
            if op.name in ("func.return", "stablehlo.return"):
                return [*op.operands]
            if op.name in ("func.call", "stablehlo.composite"):
                self._called(op)
            elif op.name == CASE:
                self._chosen(op)
            elif not self._part_of_one(op):
                self._line(op)
        return []

    def _called(self, op: Any) -> None:
        """Write the operations of a called function in its place, or the one that they stand for."""
        if op.name == "stablehlo.composite" and op.attributes["name"].value in COMPOSITES:
            self._open = ""
            return self._line(op, op.attributes["name"].value)
        name = op.attributes["callee" if op.name == "func.call" else "decomposition"].value
        body = self._functions[name].entry_block
        for argument, value in zip(body.arguments, op.operands, strict=True):
            self._alias(argument, value)
        return self._results(op, self._block(body))

    def _chosen(self, op: Any) -> None:
        """Write the one branch of a choice by the platform."""
        (which,) = op.operands
        if which not in self._whole:
            raise self._refused(op, ", whose branch depends on the data, and is not")
        branch = op.regions[min(self._whole[which], len(op.regions) - 1)].blocks[0]
        self._results(op, self._block(branch))

    def _results(self, op: Any, values: list[Any]) -> None:
        for result, value in zip(op.results, values, strict=True):
            self._alias(result, value)

    def _alias(self, new: Any, old: Any) -> None:
        if new == old:
            return
        self._names.pop(new, None)
        self._whole.pop(new, None)
        self._fixed.discard(new)
        if old in self._fixed:
            self._fixed.add(new)
        if old in self._whole:
            self._whole[new] = self._whole[old]
        if old in self._names:
            self._names[new] = self._names[old]

    def _part_of_one(self, op: Any) -> bool:
        """Write an operation of JAX's that stands as many here as one; returns whether it is one."""
        if op.name == "stablehlo.constant":
            return False
        name = _marked(op)
        if name not in AS_ONE:
            self._open = ""
            return False
        if not all(map(_is_data, op.results)):
            return False  # it computes a shape
        given = [self._names[e] for e in op.operands if _is_data(e) and e not in self._fixed]
        if not given:
            return False  # it computes a number of the polynomial
        if str(op.location) != self._open or not self._own.issuperset(given):
            self._open, self._first = str(op.location), op.results[0]
            self._own = {given[0], self._new(self._first)}
            self.lines.append(f"    {self._names[self._first]} = {name}_({given[0]})")
        self._results(op, [self._first] * len(op.results))
        return True

    def _line(self, op: Any, name: str = "") -> None:
        """Write one operation, under another name if one is given."""
        name = (name or op.name).removeprefix("stablehlo.").removeprefix("chlo.")
        for value in (*op.operands, *op.results):
            if (mlir := mlir_type(value)) not in TYPES:
                raise self._refused(op, f" of {mlir}, which is not")
        if name == "constant":
            return self._constant(op)
        if name == "custom_call" and op.attributes["call_target_name"].value in SKIPPED:
            return None
        invocation = attributes_of(name, op)
        if invocation is None or (len(op.results) != 1 and invocation[0] not in ONE_OF_TWO):
            raise self._refused(op, ", which is not")
        kind, operands, attributes = invocation
        given = [*map(self._name, operands)]
        given += [
            f"{key}={self._name(value) if hasattr(value, 'owner') else repr(value)}"
            for key, value in attributes.items()
        ]
        self.lines.append(f"    {self._new(op.results[-1])} = {kind}_({', '.join(given)})")
        fixed = operands and all(each in self._fixed for each in operands)
        (self._fixed.add if fixed else self._fixed.discard)(op.results[0])

    def _constant(self, op: Any) -> None:
        value, result = array_of(op.attributes["value"]), op.results[0]
        self._fixed.add(result)
        if value.size > 1 and value.dtype.kind not in "iub":
            key = f"constant{len(self.constants)}"
            self.constants[key] = value
            self._names[result] = f"w[{key!r}]"
            return
        self._names.pop(result, None)
        if not value.ndim and value.dtype.kind in "iu":
            self._whole[result] = int(value)
        name = f"c{len(self.small)}"
        self.small[name] = value
        self._names[result] = name

    def _refused(self, op: Any, why: str) -> ConfigError:
        name = op.name.removeprefix("stablehlo.")
        if name == "custom_call":
            name += f" of {op.attributes['call_target_name'].value}"
        return ConfigError(
            f"{self._path}: holds a {name}{why} evaluated here operation by operation; JAX runs it"
        )


def _marked(op: Any) -> str:
    """Return the last name in an operation's location: "jit(gelu)/erfc" is of an erfc."""
    return str(op.location).partition('loc("')[2].partition('"')[0].rpartition("/")[2]


def _is_data(value: Any) -> bool:
    """Return whether a value is of floating point, or of their comparison."""
    return str(value.type.element_type) in ("f32", "f64", "bf16", "f16", "i1") and shape_of(value) != ()
