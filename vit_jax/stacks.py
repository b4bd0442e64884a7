"""Stacks: tensors of neighbouring blocks held as one tensor, where the blocks are a loop.

A step then has as many tensors as one block, however deep the model is, and its optimiser as many
updates: the compiled program does not grow with depth, and parameters, gradients and moments of a
loop are not joined and split in every step. A stack is named after its blocks,
``blocks.1-47.attn.qkv.weight``, and has them along its first axis. Only the devices see stacks: the
host, and so every checkpoint, has one tensor for each block.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_STACK = re.compile(r"blocks\.(\d+)-(\d+)\.(.+)")


def stack_name(blocks: range, name: str) -> str:
    """Name the stack of one parameter, by the parameter's name inside a block."""
    return f"blocks.{blocks[0]}-{blocks[-1]}.{name}"


def members(name: str) -> tuple[str, ...]:
    """Return the common names of a stack's tensors, in order; any other name by itself."""
    match = _STACK.fullmatch(name)
    if match is None:
        return (name,)
    return tuple(f"blocks.{index}.{match[3]}" for index in range(int(match[1]), int(match[2]) + 1))


def is_stack(name: str) -> bool:
    """Return whether a name is that of a stack."""
    return _STACK.fullmatch(name) is not None


def stack(tree: Any, names: Collection[str]) -> Any:
    """Replace the members of the named stacks by the stacks, in a state, parameters or gradients.

    Args:
        tree: arrays of numpy or JAX or their shapes, in dictionaries by common name at any depth.
    """

    def stacked(named: Any) -> Any:
        if not isinstance(named, dict) or not any(members(name)[0] in named for name in names):
            return named
        groups = {name: [named[member] for member in members(name)] for name in names}
        inside = {member for name in names for member in members(name)}
        rest = {name: value for name, value in named.items() if name not in inside}
        return rest | {name: _together(values) for name, values in groups.items()}

    return jax.tree.map(stacked, tree, is_leaf=_is_named)


def unstack(tree: Any) -> Any:
    """Undo `stack`; numpy arrays become views."""

    def apart(named: Any) -> Any:
        if not isinstance(named, dict) or not any(map(is_stack, named)):
            return named
        return {
            member: _one(value, index) if is_stack(name) else value
            for name, value in named.items()
            for index, member in enumerate(members(name))
        }

    return jax.tree.map(apart, tree, is_leaf=_is_named)


def ndims(named: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of axes of each tensor, by common name, whether stacked or not."""
    return {
        member: value.ndim - is_stack(name) for name, value in named.items() for member in members(name)
    }


def along_stack(name: str, value: Any, numbers: Mapping[str, float]) -> Any:
    """Return a number for each tensor, in a shape to multiply the tensor or the stack `value` with."""
    if not is_stack(name):
        return numbers[name]
    column = np.array([numbers[member] for member in members(name)], value.dtype)
    return column.reshape(-1, *(1,) * (value.ndim - 1))


def _is_named(tree: Any) -> bool:
    return isinstance(tree, dict) and all(isinstance(name, str) for name in tree)


def _together(values: list[Any]) -> Any:
    if isinstance(values[0], jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct((len(values), *values[0].shape), values[0].dtype)
    return np.stack(values) if isinstance(values[0], np.ndarray) else jnp.stack(values)


def _one(value: Any, index: int) -> Any:
    if isinstance(value, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(value.shape[1:], value.dtype)
    return value[index]
