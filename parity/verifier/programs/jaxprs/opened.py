"""Dataclasses that JAX does not know, as trees of their fields on their way into a program."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import jax

from parity.verifier.programs.callables import is_record


class OpenedDataclass:
    """The fields of a dataclass, and the original from which it is made again."""

    def __init__(self, like: Any, inside: dict[str, Any]) -> None:
        self.like, self.inside = like, inside


def _flatten(each: OpenedDataclass) -> tuple[list[tuple[Any, Any]], tuple[Any, tuple[str, ...]]]:
    keys = [(jax.tree_util.GetAttrKey(name), value) for name, value in each.inside.items()]
    return keys, (each.like, tuple(each.inside))


def _unflatten(aux: tuple[Any, tuple[str, ...]], children: Iterable[Any]) -> OpenedDataclass:
    return OpenedDataclass(aux[0], dict(zip(aux[1], children, strict=True)))


jax.tree_util.register_pytree_with_keys(OpenedDataclass, _flatten, _unflatten)


def opened(tree: Any) -> Any:
    """Open the dataclasses of a tree; those that JAX knows are trees already."""

    def of(leaf: Any) -> Any:
        if not is_record(leaf):
            return leaf
        return OpenedDataclass(
            leaf, {each.name: opened(getattr(leaf, each.name)) for each in fields(leaf)}
        )

    return jax.tree.map(of, tree)


def closed(tree: Any) -> Any:
    """Return the tree that `opened` was given, with the values that are in it now."""

    def of(leaf: Any) -> Any:
        if not isinstance(leaf, OpenedDataclass):
            return leaf
        made = copy.copy(leaf.like)
        for name, value in leaf.inside.items():
            object.__setattr__(made, name, closed(value))
        return made

    return jax.tree.map(of, tree, is_leaf=lambda each: isinstance(each, OpenedDataclass))
