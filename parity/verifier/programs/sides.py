"""Recording a side of a comparison from what a user gives: a module, a function, a specification."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from parity.verifier.programs.built import watch_building
from parity.verifier.programs.callables import arguments_of, is_a, is_torch, kinds_of, unwrapped
from parity.verifier.programs.files import is_program, program_as_twin
from parity.verifier.programs.memory import of_backward
from parity.verifier.programs.mistakes import GIVE, SEALED, in_one_line, is_sealed
from parity.verifier.programs.program import Program
from vit_config import InputError


class OfWeights(tuple[Any, ...]):
    """A model with inputs that a preset or a checkpoint stands for."""


@dataclass(frozen=True)
class GivenSide:
    """A side of a comparison, taken apart."""

    name: str
    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    variables: Any = None
    """Variables of a Linen module."""
    bound: int = 0
    """How many of `args` were bound before the inputs were given."""
    promises_more: bool = False
    """Whether it is a preset or a checkpoint, whose outputs were not asked for one by one."""
    backward: list[float] = field(default_factory=list, compare=False)
    """The bytes that its gradients take, once it was recorded."""

    @property
    def torch(self) -> bool:
        """Whether it is a program of torch."""
        return is_torch(self.function, self.args, self.kwargs)

    @property
    def forward_only(self) -> str:
        """Why it has no gradients to compare; empty where it has."""
        inner = getattr(self.function, "program", self.function)
        return getattr(inner, "forward_only", "")

    @property
    def trees(self) -> int:
        """How many of `args` hold parameters."""
        return kinds_of(self.args, self.bound).count("parameter")


def taken_apart(side: Any, name: str) -> GivenSide:
    """Take what a user gives apart into a function and its arguments; see `record`.

    Raises:
        InputError: it is nothing that can be called.
    """
    if isinstance(side, GivenSide):
        return side
    if isinstance(side, str):
        from parity.verifier.programs.build import BuildOrder, build_from

        side = build_from(BuildOrder(name=side))
    of_weights = isinstance(side, OfWeights)
    function, *rest = side if isinstance(side, tuple) else (side,)
    function = program_as_twin(function) if is_program(function) else function
    variables = rest.pop(0) if is_a(function, "flax.linen") and len(rest) == 2 else None
    if len(rest) > 1:
        raise InputError(
            f"{name}: expected (callable, inputs), found a tuple of {len(rest) + 1}; several inputs are"
            " one tuple, (function, (parameters, images)); a Linen module stands before its variables"
        )
    if is_a(function, "flax.linen") and variables is None:
        if getattr(function, "scope", None) is None:
            raise InputError(f"{name}: Linen without variables; give (module, variables, inputs)")
        function, variables = function.unbind()
    args, kwargs = arguments_of(rest[0] if rest else ())
    function, args, kwargs, bound = unwrapped(function, args, kwargs)
    if not callable(function):
        kind = type(function).__qualname__
        why = SEALED if is_sealed(function) else f"{kind} cannot be called; {GIVE}"
        raise InputError(f"{name}: {why}")
    return GivenSide(name, function, args, kwargs, variables, bound, of_weights)


def record(side: Any, name: str, *, gradients: bool = False, dtype: str | None = None) -> Program:
    """Run and record one side of a comparison.

    Args:
        side: ``(callable, inputs)``, ``(linen module, variables, inputs)``, a callable of no arguments,
            or ``"file.py:function"`` of a function that returns one of these. The callable is a path of
            an ONNX graph or of an archive of torch.export, a
            torch.nn.Module, an nnx.Module, a function, a `functools.partial` or a callable pytree;
            inputs are one array, a tuple of them, or a dictionary by argument names.
        name: what the program is called.
        gradients: whether the callable computes gradients itself (a step of training): torch then
            records the backward pass too, with the lines of the forward operations. A torch.nn.Module
            among its arguments is copied, so that a step leaves the user's as it was.
        dtype: bfloat16, float16 or float32: round what the program holds to this type, and note the
            type that every operation then has; None for float64 throughout.

    Raises:
        InputError: it is none of these, or returns nothing that could be compared.
    """
    given = taken_apart(side, name)
    function, args, kwargs = given.function, given.args, given.kwargs
    with in_one_line(given.name, function, args, kwargs), watch_building():
        if is_sealed(function):
            raise InputError(f"{given.name}: {SEALED}")
        if given.torch:
            from parity.verifier.programs.aten import side as torch_side

            program = torch_side.record_side(function, args, kwargs, given.bound, name, gradients, dtype)
        else:
            from parity.verifier.programs.jaxprs import side as jax_side

            program = jax_side.record_side(
                function, given.variables, args, kwargs, given.bound, name, dtype
            )
        program.promises_more = given.promises_more
        given.backward[:] = [of_backward(program, "torch" if given.torch else "jax")]
        if not program.outputs:
            those = f" ({'; '.join(program.without_numbers)})" if program.without_numbers else ""
            raise InputError(
                f"{given.name}: returns nothing that holds numbers{those}; return an array, or a tuple"
                " or dictionary of arrays"
            )
        return program
