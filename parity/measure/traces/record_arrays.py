"""Recording named arrays and trees of them, whatever made them; and what a recording asks of a
framework."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from parity.measure.site import Stage
from parity.measure.traces.sample import Sample
from vit_config import InputError

MOMENTS = {
    "mu": "exp_avg",
    "nu": "exp_avg_sq",
    "nu_max": "max_exp_avg_sq_hat",
    "trace": "momentum_buffer",
    "count": "step",
    "sum_of_squares": "exp_avg_sq",
    **{name: name for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "step")},
}
"""Names of moments in optax and PyTorch, with PyTorch's names for the same."""
BY_HAND = {"m": "mu", "v": "nu", "t": "count"}
"""Names that Adam's paper gives its moments."""
RATE = ("hyperparams", "learning_rate")
"""End of the path of the rate in a state of `optax.inject_hyperparams`."""
OF_RATE = "(rate)"
"""Port of a learning rate that was found among moments."""

Path = tuple[str, ...]


def named_leaves(stage: Stage, value: Any) -> Iterator[tuple[Path, str, Any]]:
    """Yield the path, port and value of each leaf of a tree. Of an optimiser's state these are its
    moments, without the path that leads to them, its number of updates, and its learning rate if it is
    a hyperparameter in the state.

    Raises:
        InputError: a leaf is a value that is only traced.
    """
    leaves = list(_leaves(value))
    if stage == "moments" and {"m", "v"} <= {path[0] for path, _ in leaves if path} <= {*BY_HAND}:
        leaves = [((BY_HAND[path[0]], *path[1:]), leaf) for path, leaf in leaves]
    jax = sys.modules.get("jax")
    for path, leaf in leaves:
        if jax is not None and isinstance(leaf, jax.core.Tracer):
            raise InputError(
                f"{stage}: {'.'.join(path) or 'a value'} is a tracer; return it from the"
                " compiled function and log it there"
            )
    if stage == "moments" and any(_moment(path) for path, _ in leaves):
        yield from _of_optimizer(leaves)
    else:
        yield from ((path, "", leaf) for path, leaf in leaves)


def _of_optimizer(leaves: Iterable[tuple[Path, Any]]) -> Iterator[tuple[Path, str, Any]]:
    counts: set[int] = set()
    for path, leaf in leaves:
        place = _moment(path)
        if path[-2:] == RATE:
            yield (), OF_RATE, leaf
        elif place and MOMENTS[path[place - 1]] != "step":
            yield path[place:], MOMENTS[path[place - 1]], leaf
        elif place and np.size(leaf) == 1 and (count := int(leaf)) not in counts:
            counts.add(count)  # each transformation in a chain may count
            yield (), "step", leaf


def _moment(path: Path) -> int:
    """Return the number of names up to that of a moment; 0 if there is none."""
    return max((i + 1 for i, name in enumerate(path) if name in MOMENTS), default=0)


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping):
        named = [(str(name), part) for name, part in value.items()]
    elif isinstance(value, (list, tuple)) and not _is_numbers(value):
        names = getattr(value, "_fields", range(len(value)))
        named = [(str(name), part) for name, part in zip(names, value, strict=True)]
    else:
        yield from ((path + below, leaf) for below, leaf in _of_jax(value))
        return
    for name, part in named:
        yield from _leaves(part, path if name == "params" and not path else (*path, name))


def _is_numbers(value: Any) -> bool:
    """Return whether a list holds nothing but numbers, so that it is an array."""
    return len(value) > 0 and all(
        isinstance(each, (bool, int, float)) or (isinstance(each, (list, tuple)) and _is_numbers(each))
        for each in value
    )


def _of_jax(value: Any) -> Iterator[tuple[Path, Any]]:
    """Yield the leaves of a tree that JAX knows, if it is loaded; else the value itself."""
    jax = sys.modules.get("jax")
    if jax is None or value is None or jax.tree_util.all_leaves([value]):
        yield from [] if value is None else [((), value)]
        return
    for keys, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
        yield path_of(keys), leaf


@lru_cache(maxsize=2**16)
def path_of(keys: tuple[Any, ...]) -> Path:
    """Return a path in a tree of JAX without a variable's ``value`` and Linen's ``params``."""
    path = tuple(map(key_name, keys))
    if keys and path[-1] == "value" and hasattr(keys[-1], "name"):
        path = path[:-1]
    return path[1:] if path[:1] == ("params",) else path


@lru_cache(maxsize=2**16)
def key_name(key: Any) -> str:
    """Return the name of an entry of a path in a tree of JAX."""
    return str(next((getattr(key, each) for each in ("key", "name", "idx") if hasattr(key, each)), key))


_CONVOLUTIONS = {3: (2, 1, 0), 4: (3, 2, 0, 1), 5: (4, 3, 0, 1, 2)}
"""Axes that turn (space..., in, out) into (out, in, space...), by the number of axes."""


def common_parameter(path: str, array: Any) -> tuple[str, Any]:
    """Translate a Flax parameter, an array of NumPy or JAX, to PyTorch's name and layout.

    ``kernel`` (in, out) becomes ``weight`` (out, in), a convolution's (h, w, in, out) becomes (out,
    in, h, w), and attention's kernels by heads - (in, heads, d) of query, key and value, (heads, d,
    out) of out - become matrices; ``scale`` and ``embedding`` become ``weight``.
    """
    module, _, leaf = path.rpartition(".")
    last = module.rpartition(".")[2]
    by_heads = last in ("query", "key", "value")
    if leaf == "kernel":
        if array.ndim == 3 and last == "out":
            array = array.reshape(-1, array.shape[-1])
        elif array.ndim == 3 and by_heads:
            array = array.reshape(len(array), -1)
        if array.ndim == 2:
            array = array.T
        elif array.ndim in _CONVOLUTIONS:
            array = array.transpose(_CONVOLUTIONS[array.ndim])
    if leaf == "bias" and array.ndim == 2 and by_heads:
        array = array.reshape(-1)
    leaf = "weight" if leaf in ("kernel", "scale", "embedding") else leaf
    return (f"{module}.{leaf}" if module else leaf), array


if TYPE_CHECKING:
    from parity.measure.traces.recorder import Recorder


class PlainArrays:
    """No framework: values are arrays or trees of them, of any framework."""

    name: Literal["torch", "jax", ""] = ""

    def versions(self) -> dict[str, str]:
        """Return the versions of the framework, and the device it computes on."""
        return {"numpy": np.__version__}

    def precision(self) -> dict[str, str]:
        """Return the flags that could make products less precise than their types."""
        return {}

    def watch(self, recorder: Recorder) -> AbstractContextManager[Any]:
        """Report to `recorder` whatever can be seen without the user's help."""
        return nullcontext()

    def named(self, stage: Stage, value: Any) -> Iterator[tuple[str, str, np.ndarray | Sample]]:
        """Yield the arrays of a tree as (path, port, array), with names joined by dots; of any state of
        optax, the moments.

        A tree with kernels is Flax's: its names and layouts are translated.
        """
        leaves = [(path, port, _array(stage, leaf)) for path, port, leaf in named_leaves(stage, value)]
        of_flax = any(path[-1:] == ("kernel",) for path, _, _ in leaves)
        for path, port, array in leaves:
            name = ".".join(path)
            name, array = common_parameter(name, array) if of_flax else (name, array)
            yield name, port, array

    def begin_step(self, recorder: Recorder) -> None:
        """Report the tensors that exist before a step."""

    def end_step(self, recorder: Recorder) -> None:
        """Report the tensors that exist after a step."""

    def abandon_step(self, recorder: Recorder) -> None:
        """Report the tensors that exist when a step ends in an exception; raise nothing."""

    def modules(self) -> Iterator[tuple[str, Any]]:
        """Yield every module of the model with its path, as far as it is known without a call."""
        return iter(())

    def facts(self, module: Any) -> dict[str, Any]:
        """Return the attributes of a module."""
        return {}


def _array(stage: Stage, leaf: Any) -> np.ndarray:
    """Return a leaf of a tree as an array.

    Raises:
        InputError: it is none.
    """
    if (torch := sys.modules.get("torch")) is not None and isinstance(leaf, torch.Tensor):
        from parity.measure.traces.record_torch import as_numpy

        return as_numpy(leaf)
    array = np.asarray(leaf)
    if array.dtype == object or array.dtype.kind in "US":
        raise InputError(f"{stage}: expected arrays or trees of them, found {type(leaf).__name__}")
    return array
