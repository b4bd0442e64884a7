"""A torch module or function, prepared to be recorded: in float64, with names for what it reads."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from parity.verifier.programs.aten.context import named_tensors
from parity.verifier.programs.aten.held import HeldByTorch, Leaf, all_modules
from parity.verifier.programs.aten.record import in_float64, record_torch, returns_draws
from parity.verifier.programs.built import construction_of
from parity.verifier.programs.callables import argument_names, is_a, kinds_of, leaves_of, map_arrays
from parity.verifier.programs.jaxprs.values import rounding_of
from parity.verifier.programs.mistakes import mistake
from parity.verifier.programs.operation import Kind
from parity.verifier.programs.program import REFUSES, Program
from parity.verifier.programs.training import Training, note_training, training_of


def record_side(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    bound: int,
    name: str,
    gradients: bool,
    dtype: str | None = None,
    held: HeldByTorch | None = None,
) -> Program:
    """Record what a call computes; modules run in evaluation mode and are left as they were.

    Args:
        function: a module, a compiled, scripted or exported one, or a function.
        args: its positional arguments, arrays of numpy or of torch among them.
        kwargs: its named arguments.
        bound: how many of `args` were bound before the inputs were given.
        name: what the program is called.
        gradients: whether the function runs backward.
        dtype: type to which the program is rounded, and in which it runs; None for float64 throughout.
        held: what the function holds; None to look for it.
    """
    held = HeldByTorch(function) if held is None else held
    given = [function, *held.modules.values(), *leaves_of(args[:bound])]
    modules = [each for each in given if isinstance(each, torch.nn.Module) and not _is_exported(each)]
    training = [each for each in modules if each.training]
    arguments = bound, name, gradients, dtype
    try:
        program = _recorded(function, held, args, kwargs, *arguments)
    except Exception as error:
        try:
            program = _recorded(function, held, args, kwargs, *arguments, own=True)
        except Exception:
            raise error from None
        if returns_draws(program):  # it would draw anew
            raise
        reason = mistake(error, function, args, kwargs) or type(error).__name__
        program.notes.append(REFUSES.format(reason))
    if not returns_draws(program):
        program.draws.clear()
    if training:
        note_training(program, _training(training, held.paths()))
    return program


def _recorded(
    function: Any,
    held: HeldByTorch,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    bound: int,
    name: str,
    gradients: bool,
    dtype: str | None,
    *,
    own: bool = False,
) -> Program:
    """Record a call; `own`: in the types that it is given, and then computed again in float64."""
    wanted = None if own else torch.float64 if dtype is None else getattr(torch, dtype)
    cast = _Cast(wanted)
    args, kwargs = map_arrays(cast, args), map_arrays(cast, kwargs)
    function = getattr(function, "_orig_mod", function)
    if type(function).__name__ == "ExportedProgram":
        function = function.module()
    signature = function.forward if isinstance(function, torch.nn.Module) else function
    state: dict[str, torch.Tensor] = {}
    if isinstance(function, torch.jit.ScriptModule):
        function = cast(function)  # cannot be called with other parameters than its own
    elif isinstance(function, torch.nn.Module):
        state = cast.state(function)

    def call() -> Any:
        if state:
            return torch.func.functional_call(function, state, args, kwargs)
        return function(*args, **kwargs)

    labels = argument_names(signature, len(args))
    for kind, label, value in zip(kinds_of(args, bound), labels, args, strict=True):
        cast.argument(kind, label, value)
    for label, value in kwargs.items():
        cast.argument("input", label, value)
    given = [function, *held.modules.values(), *leaves_of(args[:bound])]
    with _evaluating(given), held.cast(wanted) as of_its_own:
        program = record_torch(
            call, [*cast.leaves, *of_its_own], name, cast.modules | held.paths(),
            gradients=gradients, as_it_is=dtype is not None, own=own,
        )  # fmt: skip
    return in_float64(program) if own else program


class _Cast:
    """A conversion of tensors and modules to one type, which remembers the types that they had."""

    def __init__(self, dtype: torch.dtype | None) -> None:
        self._dtype = dtype
        self.leaves: list[Leaf] = []
        self.modules: dict[int, str] = {}
        """Paths of modules by their `id`."""
        self._epsilons: dict[int, float] = {}

    def __call__(self, each: Any) -> Any:
        if isinstance(each, (np.ndarray, np.generic)) or is_a(each, "jaxlib"):
            each = _tensor(np.asarray(each))
        if isinstance(each, torch.nn.Module):
            return self._copy(each)
        if not isinstance(each, torch.Tensor):
            return each
        # a copy: the program may write into it
        made = (self._converted(each.detach()) if _is_inexact(each) else each.detach()).clone()
        self._epsilons[id(made)] = rounding_of(each.dtype)
        return made

    def _converted(self, tensor: torch.Tensor) -> torch.Tensor:
        dtype = self._dtype or tensor.dtype
        return tensor.to(dtype.to_complex() if tensor.is_complex() else dtype)

    def _copy(self, module: torch.nn.Module) -> torch.nn.Module:
        own = _copied(module)
        for each in (*own.parameters(), *own.buffers()):
            each.data = self._converted(each.data) if _is_inexact(each) else each.data
        self.modules.update((id(inner), path) for path, inner in own.named_modules())
        held = [*own.named_parameters(), *own.named_buffers()]
        before = [*module.parameters(), *module.buffers()]
        loaded = module.state_dict()
        for (path, tensor), old in zip(held, before, strict=True):
            self.leaves.append((_kind(path, loaded), path, tensor, rounding_of(old.dtype)))
        return own

    def state(self, module: torch.nn.Module) -> dict[str, torch.Tensor]:
        """Return the tensors that replace a module's parameters and buffers; shared ones stay shared."""
        held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        shared: dict[int, torch.Tensor] = {}
        state = {path: shared.setdefault(id(each), self(each)) for path, each in held.items()}
        loaded = module.state_dict()
        for path, each in state.items():
            self.leaves.append((_kind(path, loaded), path, each, self._epsilons[id(each)]))
        self.modules.update((id(each), path) for path, each in module.named_modules())
        return state

    def argument(self, kind: Kind, label: str, value: Any) -> None:
        """Name the tensors of an argument."""
        for path, each in named_tensors(value):
            whole = ".".join(filter(None, (label, path)))
            self.leaves.append((kind, whole, each, self._epsilons.get(id(each), 0.0)))


def _is_exported(module: torch.nn.Module) -> bool:
    """Return whether a module comes out of torch.export, which fixes the mode that it ran in."""
    return isinstance(module, torch.fx.GraphModule) and "eval" in vars(module)


def _training(modules: Sequence[torch.nn.Module], paths: dict[int, str]) -> list[Training]:
    """Return what the layers of modules do in training mode alone."""
    found: dict[int, list[Training]] = {}
    for module in modules:
        for path, each in module.named_modules():
            construction, path = construction_of(each), paths.get(id(each), path)
            line = construction.source if construction else None
            path = path.removeprefix("_orig_mod").strip(".")
            found[id(each)] = training_of(path, each, line) if each.training else []
    return [layer for layers in found.values() for layer in layers]


def _is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _kind(path: str, loaded: Container[str]) -> Kind:
    """Return the kind of a tensor: a buffer that no checkpoint holds is a constant of the code."""
    return "parameter" if path in loaded else "constant"


def _tensor(array: np.ndarray) -> torch.Tensor:
    """Copy an array into a tensor; numpy's bfloat16 is not torch's."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype(np.float32)).bfloat16()
    return torch.from_numpy(np.array(array))


@contextmanager
def _evaluating(given: Sequence[Any]) -> Iterator[None]:
    """Put modules in evaluation mode while entered, and back into their own afterwards, with the
    attributes that they had: LeViT keeps what it computes of its biases, which then have no gradient."""
    modules = all_modules(given)
    before = [(each.training, dict(vars(each)), _containers(each)) for each in modules]
    try:
        for each in modules:
            each.training = False
        yield
    finally:
        for each, (training, attributes, containers) in zip(modules, before, strict=True):
            for name in vars(each).keys() - attributes.keys():
                del vars(each)[name]
            vars(each).update(attributes)
            for kept, held in containers:
                kept.clear()
                kept.update(held)
            each.training = training


def _containers(module: torch.nn.Module) -> list[tuple[dict[Any, Any], dict[Any, Any]]]:
    """Return the dictionaries that a module has of its own, and what they hold."""
    own = (each for name, each in vars(module).items() if name[:1] != "_" and type(each) is dict)
    return [(each, dict(each)) for each in own]


def _copied(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of a module, with parameters of its own, without torch's warnings."""
    with warnings.catch_warnings(), torch.no_grad():  # with gradients a traced one has no leaves
        # torch's own copy of what it exported
        warnings.filterwarnings("ignore", ".*LeafSpec.*is deprecated", FutureWarning)
        return copy.deepcopy(module)
