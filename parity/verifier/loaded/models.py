"""The parameters and buffers of a model of any framework, by name, read one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np

from parity.porting.formats.base import Stored
from parity.verifier.programs.callables import is_a
from parity.verifier.programs.held import held_by
from vit_config import InputError

SEEDS = ("RngState", "Intermediate", "Cache", "OptState", "OptVariable")
"""Classes of NNX's variables that no checkpoint gives a model."""


@dataclass(frozen=True)
class Leaf:
    """A parameter of a model, or a buffer that is saved with it."""

    name: str
    stored: Stored | None
    """Its numbers; None if it has none, as on torch's meta device."""
    kind: Literal["parameter", "buffer"] = "parameter"
    also: tuple[str, ...] = ()
    """Other names of the same tensor: tied parameters."""


@dataclass(frozen=True)
class Held:
    """What a model holds."""

    leaves: tuple[Leaf, ...]
    unsaved: tuple[Stored, ...] = ()
    """Buffers that a checkpoint of it does not have."""


def read_model(model: Any) -> Held:
    """Read a model's parameters, and the buffers that its checkpoints have.

    Args:
        model: a module of PyTorch, NNX, Equinox or Keras, however wrapped; nested dictionaries of
            arrays, such as the variables of Linen or the parameters of Haiku; a tuple that begins with
            one of these, or with a function, and goes on with its variables or inputs; or what
            `parity.load` returns.

    Raises:
        InputError: it holds no parameters, or their numbers are in another process.
    """
    held = _held(model)
    if not held.leaves:
        raise InputError(
            f"{type(model).__module__}.{type(model).__qualname__} holds no parameters; give a module of"
            " torch, NNX, Equinox or Keras, a tuple that begins with one, or variables of Linen or Haiku"
        )
    return held


def _held(model: Any) -> Held:
    if type(model) is tuple:
        return _of_tuple(*model)
    if is_a(model, "parity") and hasattr(model, "model"):
        return _held(model.model)
    if is_a(model, "torch") and callable(getattr(model, "state_dict", None)):
        return _of_torch(model)
    if is_a(model, "flax.nnx"):
        return Held(tuple(_of_nnx(model)))
    if is_a(model, "keras") and hasattr(model, "weights"):
        return Held(tuple(_leaf(each.path.replace("/", "."), each.value) for each in model.weights))
    if hasattr(model, "params") and hasattr(model, "apply_fn"):  # Flax's TrainState
        return _held({"params": model.params, "batch_stats": getattr(model, "batch_stats", {})})
    leaves = tuple(leaves_of(model)) if not callable(model) or is_a(model, "equinox") else ()
    if leaves or not callable(model):
        return Held(leaves)
    return _together([(name, each) for name, each in held_by(model)])


def _of_tuple(first: Any = None, *rest: Any) -> Held:
    """Read the first of a tuple; of a function or a Linen module, the variables that follow it."""
    described = is_a(first, "flax.linen") or (
        callable(first)
        and not any(is_a(first, each) for each in ("torch", "flax.nnx", "equinox", "keras"))
    )
    if described and rest and not hasattr(rest[0], "shape"):
        return _held(rest[0])
    return _held(first)


def _together(parts: list[tuple[str, Any]]) -> Held:
    """Join what a function holds: one module as it is, arrays by their names."""
    modules = [each for _, each in parts if not hasattr(each, "dtype")]
    if len(modules) == 1:
        return _held(modules[0])
    arrays = {name: each for name, each in parts if hasattr(each, "dtype")}
    return Held(tuple(leaves_of(arrays)))


def _of_torch(model: Any) -> Held:
    import torch

    state = {n: t for n, t in model.state_dict().items() if isinstance(t, torch.Tensor)}
    # FSDP and DDP write their own prefixes into one list of names and not into the other
    parameters = {_ends(n) for n, _ in model.named_parameters(remove_duplicate=False)}
    groups: dict[Any, list[str]] = {}
    for name, tensor in state.items():
        groups.setdefault(_place(tensor) or name, []).append(name)
    leaves = []
    for first, *also in groups.values():
        kind = "parameter" if _ends(first) in parameters else "buffer"
        leaves.append(Leaf(first, _of_tensor(state[first]), kind, tuple(also)))
    unsaved = [_of_tensor(each) for name, each in model.named_buffers() if name not in state]
    return Held(tuple(leaves), tuple(each for each in unsaved if each is not None))


def _ends(name: str) -> str:
    return name.replace("_fsdp_wrapped_module.", "").replace("_orig_mod.", "")


def _place(tensor: Any) -> Any:
    """Return what two names of one tensor have in common; None if that cannot be told."""
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_meta or not tensor.numel():
        return None
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _of_tensor(tensor: Any) -> Stored | None:
    import torch

    if torch.nn.parameter.is_lazy(tensor) or tensor.is_meta or tensor.is_quantized:
        return None
    tensor = tensor.detach()
    whole = getattr(tensor, "full_tensor", None)  # of fully_shard: gathered when it is read

    def load() -> np.ndarray:
        return _to_numpy(whole() if whole else tensor)

    dtype = _to_numpy(torch.zeros(1, dtype=tensor.dtype)).dtype
    return Stored(tuple(tensor.shape), dtype, load)


def _of_nnx(model: Any) -> Iterator[Leaf]:
    from flax import nnx

    for path, variable in nnx.to_flat_state(nnx.state(model)):
        kinds = {base.__name__ for base in getattr(variable, "type", type(variable)).__mro__}
        value = variable.get_value() if hasattr(variable, "get_value") else variable
        if kinds.isdisjoint(SEEDS) and hasattr(value, "shape"):
            kind = "parameter" if "Param" in kinds else "buffer"
            yield _leaf(".".join(map(str, path)), value, kind)


def leaves_of(tree: Any, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Yield the arrays in nested containers, and in whatever JAX takes apart."""
    if isinstance(tree, Mapping):
        for key, each in tree.items():
            yield from leaves_of(each, (*path, str(key)))
    elif hasattr(tree, "dtype") and hasattr(tree, "shape"):
        yield _leaf(
            ".".join(path) or "tensor", tree, "buffer" if path[:1] == ("batch_stats",) else "parameter"
        )
    elif isinstance(tree, (list, tuple)):
        for number, each in enumerate(tree):
            yield from leaves_of(each, (*path, str(number)))
    elif is_a(tree, "equinox"):
        import jax

        for keys, each in jax.tree_util.tree_flatten_with_path(tree)[0]:
            if hasattr(each, "shape") and hasattr(each, "dtype"):
                names = (
                    getattr(key, "name", getattr(key, "idx", getattr(key, "key", key))) for key in keys
                )
                yield _leaf(".".join((*path, *map(str, names))), each)


def _to_numpy(tensor: Any) -> np.ndarray:
    """Return a tensor's numbers; float8, which torch does not give to NumPy, by its bits."""
    import torch

    from vit_torch.weights import to_numpy

    if not str(tensor.dtype).startswith("torch.float8"):
        return to_numpy(tensor, copy=False)
    dtype = np.dtype(getattr(ml_dtypes, str(tensor.dtype).removeprefix("torch.")))
    return tensor.cpu().contiguous().view(torch.uint8).numpy().view(dtype)


def _leaf(name: str, value: Any, kind: Any = "parameter") -> Leaf:
    if is_a(value, "torch"):
        return Leaf(name, _of_tensor(value), kind)
    if not hasattr(value, "__array__"):  # a jax.ShapeDtypeStruct
        return Leaf(name, None, kind)

    def load() -> np.ndarray:
        if not getattr(value, "is_fully_addressable", True):
            raise InputError(
                f"{name}: parts of it are in other processes; gather it by"
                " jax.experimental.multihost_utils.process_allgather first"
            )
        return np.asarray(value)

    return Leaf(name, Stored(tuple(value.shape), np.dtype(value.dtype), load), kind)
