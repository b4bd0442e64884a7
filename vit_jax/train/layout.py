"""The place of each parameter on a mesh: one table, by kind of layer and path.

Moments and averages lie where their parameter does. A fused projection to q, k and v is held as
(D, 3, h, d) where heads are split, so that each device has the queries, keys and values of its own
heads; as (D, 3 h d), its columns would have to change places in every step. The host, and so every
checkpoint, sees the usual shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from vit_config import ConfigError, ViTConfig
from vit_config.init import Kind
from vit_jax.functional import Params
from vit_jax.leaves import leaves
from vit_jax.stacks import members, stack, unstack
from vit_jax.weights import abstract_model

Axes = tuple[str | None, ...]
"""For each axis of an array the axis of the mesh that splits it, or None."""

RULES: tuple[tuple[Kind, str, Axes], ...] = (
    # tensors split by head
    ("linear", "blocks.*attn.qkv.weight", ("fsdp", None, "tensor", None)),  # (D, 3, h, d)
    ("linear", "blocks.*attn.qkv.bias", (None, "tensor", None)),  # (3, h, d)
    ("param", "blocks.*attn.[qv]_bias", ("tensor",)),  # (h d,)
    ("param", "blocks.*attn.qkv_weight", (None, "tensor", "fsdp", None)),  # (3, h, d, d)
    ("param", "blocks.*attn.qkv_bias", (None, "tensor", None)),  # (3, h, d)
    ("norm", "blocks.*attn.norm.*", ("tensor",)),  # (h d,)
    ("linear", "blocks.*attn.proj.weight", ("tensor", "fsdp")),  # (h d, D)
    # tensors split by hidden unit
    ("linear", "blocks.*mlp.fc1*.weight", ("fsdp", "tensor")),  # (D, M)
    ("linear", "blocks.*mlp.fc1*.bias", ("tensor",)),  # (M,)
    ("norm", "blocks.*mlp.norm.*", ("tensor",)),  # (M,)
    ("linear", "blocks.*mlp.fc2.weight", ("tensor", "fsdp")),  # (M, D)
    # all other matrices and tables
    ("linear", "*.weight", ("fsdp", None)),  # (inputs, outputs)
    ("conv", "*.weight", (None, None, None, "fsdp")),  # (ph, pw, C, D)
    ("param", "*_token", (None, None, "fsdp")),  # (1, rows, D)
    ("param", "pos_embed", (None, None, "fsdp")),  # (1, rows, D)
)
"""(kind of layer, path, axes) in JAX's layout; the first row that fits counts. Parameters that fit
no row - biases, norms - are whole on every device: they are small, and gathering them would cost
more than it saves. Where ``fsdp`` does not divide its axis, it takes the largest other one that it
divides. Rows with ``tensor`` are skipped where it has nothing to split, see `splits_heads` and
`splits_hidden`."""


@dataclass(frozen=True)
class MeshLayout:
    """The placement of one model's training state on one mesh."""

    mesh: Mesh
    specs: Mapping[str, P]
    """The partition of each parameter, by common name."""
    held: Mapping[str, tuple[int, ...]]
    """The shape on the devices of each parameter whose shape differs there."""
    usual: Mapping[str, tuple[int, ...]]
    """The shape of each parameter elsewhere."""
    stacks: tuple[str, ...] = ()
    """The names of the stacks; their axis of blocks is not split."""

    def of(self, tree: Any) -> Any:
        """Return the sharding of each leaf of a state, of parameters or of gradients."""
        return jax.tree_util.tree_map_with_path(
            lambda path, _: NamedSharding(self.mesh, self.specs.get(leaf_name(path), P())), tree
        )

    def stored(self, tree: Any) -> Any:
        """Return the sharding of each leaf in its usual shape, in which heads cannot be split."""

        def place(path: tuple[Any, ...], _: Any) -> NamedSharding:
            name = leaf_name(path)
            spec = self.specs.get(name, P())
            return NamedSharding(
                self.mesh, P(*spec[: len(self.usual[name]) - 1]) if name in self.held else spec
            )

        return jax.tree_util.tree_map_with_path(place, tree)

    def pack(self, tree: Any) -> Any:
        """Bring arrays, numpy's or JAX's, from their usual shapes to the devices' shapes and stacks."""
        return stack(_reshaped(tree, self.held), self.stacks)

    def unpack(self, tree: Any) -> Any:
        """Undo `pack`."""
        return _reshaped(unstack(tree), {name: self.usual[name] for name in self.held})

    def gather(self, params: Params) -> Params:
        """Return parameters as a layer uses them, not split over ``fsdp``; gradients are split again.

        Without this the compiler may split the work within an image instead and move activations,
        which are larger.
        """
        return {name: self._gathered(name)(value) for name, value in params.items()}

    def _gathered(self, name: str) -> Callable[[jax.Array], jax.Array]:
        split = self.specs.get(name, P())
        if "fsdp" not in split:
            return lambda value: value
        whole = P(*(None if axis == "fsdp" else axis for axis in split))
        place = {spec: NamedSharding(self.mesh, spec) for spec in (split, whole)}

        @jax.custom_vjp
        def gathered(value: jax.Array) -> jax.Array:
            # stated twice, or the compiler gathers the value before its rounding, and rounds it after
            part = jax.lax.with_sharding_constraint(value, place[split])
            return jax.lax.with_sharding_constraint(part, place[whole])

        gathered.defvjp(
            lambda value: (gathered(value), None),
            lambda _, gradient: (jax.lax.with_sharding_constraint(gradient, place[split]),),
        )
        return gathered


def make_layout(cfg: ViTConfig, mesh: Mesh, stacks: Collection[str] = ()) -> MeshLayout:
    """Apply the table to a model.

    Args:
        stacks: the names of the stacks that the devices hold (`vit_jax.stacks`).

    Raises:
        ConfigError: ``tensor`` does not divide the heads or the hidden units, or finds nothing to split.
    """
    sizes, specs, held, usual = mesh.shape, {}, {}, {}
    for field in ("num_heads", "mlp_dim"):
        if getattr(cfg, field) % sizes["tensor"]:
            raise ConfigError(
                f"mesh with tensor = {sizes['tensor']}: does not divide {field} = {getattr(cfg, field)};"
                f" the greatest that does is {math.gcd(sizes['tensor'], cfg.num_heads, cfg.mlp_dim)}"
            )
    for leaf in leaves(abstract_model(cfg)):
        usual[leaf.name] = shape = tuple(leaf.variable.get_value().shape)
        by_head = ".attn." in leaf.name
        split = sizes["tensor"] > 1 and (splits_heads(cfg, leaf.name) if by_head else splits_hidden(cfg))
        if split and ".attn.qkv." in leaf.name and leaf.kind != "fixed":
            held[leaf.name] = shape = (*shape[:-1], 3, cfg.num_heads, cfg.head_dim)
        fitting = (
            axes
            for kind, path, axes in RULES
            if leaf.kind == kind and fnmatchcase(leaf.name, path) and (split or "tensor" not in axes)
        )
        specs[leaf.name] = _spec(shape, next(fitting, ()), sizes)
    if sizes["tensor"] > 1 and not any("tensor" in spec for spec in specs.values()):
        raise ConfigError(
            f"mesh with tensor = {sizes['tensor']}: neither heads nor hidden units of this model can be"
            f' split (block = "{cfg.block}", mlp = "{cfg.mlp}"); use fsdp'
        )
    return MeshLayout(
        mesh,
        specs | {name: P(None, *specs[members(name)[0]]) for name in stacks},
        held,
        usual,
        tuple(stacks),
    )


def splits_heads(cfg: ViTConfig, name: str) -> bool:
    """Return whether ``tensor`` splits the heads of a parameter's block. Every device computes all
    heads where several of them share keys, and where they share a matrix with the MLP."""
    block = name.split(".")[1]
    return block.isdecimal() and cfg.block != "parallel" and cfg.kv_heads[int(block)] == cfg.num_heads


def splits_hidden(cfg: ViTConfig) -> bool:
    """Return whether ``tensor`` splits hidden layers; not where gate and value are one matrix."""
    return cfg.mlp != "swiglu_packed"


def _spec(shape: tuple[int, ...], axes: Axes, sizes: Mapping[str, int]) -> P:
    """Return the axes that split an array; those of size 1 are left out."""
    spec: list[str | None] = [axis if axis and sizes[axis] > 1 else None for axis in axes]
    if "fsdp" in spec and shape[spec.index("fsdp")] % sizes["fsdp"]:
        spec[spec.index("fsdp")] = None
        free = [i for i, size in enumerate(shape) if not spec[i] and size % sizes["fsdp"] == 0]
        if free:
            spec[max(free, key=lambda i: shape[i])] = "fsdp"
    while spec and spec[-1] is None:
        spec.pop()
    return P(*spec)


def leaf_name(path: tuple[Any, ...]) -> str:
    """Return the common name at the end of a leaf's path; moments have the names of their parameters."""
    return next((str(key.key) for key in path[::-1] if isinstance(key, jax.tree_util.DictKey)), "")


def _reshaped(tree: Any, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    def reshape(path: tuple[Any, ...], leaf: Any) -> Any:
        name = leaf_name(path)
        if name not in shapes:
            return leaf
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct(shapes[name], leaf.dtype)
        return leaf.reshape(shapes[name])

    return jax.tree_util.tree_map_with_path(reshape, tree)
