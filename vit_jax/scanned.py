"""Blocks as a loop that is compiled once, and activations that are recomputed instead of kept.

Neighbouring blocks of the same structure become one `jax.lax.scan`. The values that differ between
them - parameters, rotations, random keys, and numbers such as rates of stochastic depth - are
stacked inside the step, so names, checkpoints and conversion never see the loop. A block of another
structure, with other heads or the first one, which never drops, stands outside the loop. Random
draws are those of one block after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from vit_jax.leaves import leaves, walk
from vit_jax.rope import Rotation
from vit_jax.stacks import members, stack_name

Params = dict[str, jax.Array]
"""Parameters by common name, each in JAX's layout."""
Gather = Callable[[Params], Params]
"""Function that gathers parameters which a mesh splits over devices."""
Remat = Literal["none", "full", "dots_saveable", "dots_with_no_batch_dims_saveable"]
"""The part of a block that the backward pass recomputes (arXiv 1604.06174): nothing; all but its
input; all but the products of matrices; all but the linear layers. The last two are policies of
`jax.checkpoint_policies`."""


Scan = Literal["auto", "on", "off"]
"""Whether blocks run as a loop; ``auto`` decides by depth and platform."""


class Loop(NamedTuple):
    """How to run the blocks of a model; the results are the same."""

    scan: bool = False
    """Whether blocks of the same structure are compiled once, as a loop."""
    remat: Remat = "none"


UNROLLED = Loop()
"""One block after the other, without recomputation."""
DEEP = 24
"""The depth from which on blocks are scanned by default, except on a CPU: there a loop writes its
kept activations a second time, and a step takes up to a fifth longer (docs/scaling.md)."""


def choose_loop(scan: Scan, remat: Remat, *, depth: int, platform: str) -> Loop:
    """Resolve the flags for a model of some depth, on ``cpu``, ``gpu`` or ``tpu``."""
    deep = depth >= DEEP and platform != "cpu"
    return Loop(scan == "on" or (scan == "auto" and deep), remat)


def account(blocks: Sequence[nnx.Module], loop: Loop) -> str:
    """Say in a sentence which blocks are a loop, and why none is if there is none."""
    again = "" if loop.remat == "none" else f"; computed again for gradients: {loop.remat}"
    parts = stretches(blocks, loop)
    loops = [part for part in parts if len(part) > 1]
    if loops:
        alone = len(blocks) - sum(map(len, loops))
        text = ", ".join(f"{part[0]} to {part[-1]}" for part in loops)
        return f"blocks {text} compiled as one each{f', {alone} unrolled' if alone else ''}{again}"
    if loop.scan and len(blocks) > 1:
        why = "; ".join(dict.fromkeys(_difference(a, b) for a, b in pairwise(blocks)))
        return f"all {len(blocks)} blocks unrolled, for no neighbours are alike ({why}){again}"
    return f"all {len(blocks)} blocks unrolled{again}"


def _difference(one: nnx.Module, other: nnx.Module) -> str:
    """Name the first attribute in which the structures of two blocks differ."""
    a, b = _structure(one), _structure(other)
    path, name = next(place for place in (*a, *b) if a.get(place) != b.get(place))
    return ".".join(map(str, (*path, name)))


def make_run_all(
    blocks: Sequence[nnx.Module], loop: Loop, gather: Gather | None = None
) -> Callable[..., jax.Array]:
    """Make a function that runs all blocks: ``(params, x, rotations, rngs, valid) -> x``.

    It takes the model's parameters by common name, tokens (B, N, D), the rotation of each block or
    None, random streams or None, and which tokens are no padding (B, N) or None, and returns the tokens
    after the last block.

    Args:
        blocks: the blocks of an abstract model.
        gather: function applied to a block's parameters before the block uses them; in the backward
            pass again, so a device holds no more than one block's.
    """
    parts = [_Stretch(blocks, indices, gather) for indices in stretches(blocks, loop)]

    def run_all(
        params: Params,
        x: jax.Array,
        rotations: Sequence[Rotation | None],
        rngs: nnx.Rngs | None,
        valid: jax.Array | None = None,
    ) -> jax.Array:
        for part in parts:
            x = part.run(loop, params, x, rotations, rngs, valid)
        return x

    return run_all


def stretches(blocks: Sequence[nnx.Module], loop: Loop) -> list[range]:
    """Return the numbers of the blocks in each loop; of single blocks if nothing is scanned."""
    if not loop.scan:
        return [range(index, index + 1) for index in range(len(blocks))]
    structures = [_structure(block) for block in blocks]
    groups = groupby(range(len(blocks)), key=structures.__getitem__)
    return [
        range(first, first + 1 + sum(1 for _ in rest)) for _, rest in groups for first in [next(rest)]
    ]


def stacks(
    blocks: Sequence[nnx.Module], loop: Loop, rules: Callable[[str, int], Hashable]
) -> tuple[str, ...]:
    """Return the names of possible stacks: parameters with the same rules in all blocks of a loop.

    Args:
        rules: how a parameter is treated, by its common name and its number of axes.
    """
    candidates = [
        (stack_name(part, leaf.name), len(leaf.shape))
        for part in stretches(blocks, loop)
        if len(part) > 1
        for leaf in leaves(blocks[part[0]])
    ]
    return tuple(
        name for name, ndim in candidates if len({rules(member, ndim) for member in members(name)}) == 1
    )


def _attributes(block: nnx.Module) -> Iterator[tuple[tuple[Any, ...], str, Any]]:
    """Yield the module's path, the name and the value of each attribute that is not a module."""
    for path, module in walk(block):
        yield path, "", type(module)
        for name, value in vars(module).items():
            if not isinstance(value, nnx.Module | nnx.List) and not name.startswith("_pytree"):
                yield path, name, value


def _structure(block: nnx.Module) -> dict[Any, Any]:
    """Return the structure that blocks of one loop share: all but values of parameters and numbers."""

    def kind(value: Any) -> Any:
        if isinstance(value, nnx.Variable):
            array = value.get_value()
            return array if array is None else (array.shape, array.dtype)
        return float if isinstance(value, float) else value

    return {(path, name): kind(value) for path, name, value in _attributes(block)}


def _numbers(block: nnx.Module) -> dict[tuple[tuple[Any, ...], str], float]:
    """Return the numbers that are not parameters, by the path of their module and their name."""
    attributes = _attributes(block)
    return {(path, name): value for path, name, value in attributes if isinstance(value, float)}


class _Layer(NamedTuple):
    """The values of one block; stacked, those that a loop runs over."""

    params: list[jax.Array]
    numbers: list[Any]
    rotation: Rotation | None
    """None if all blocks have the same, or none."""
    keys: jax.Array | None
    """(draws,), or None if nothing is dropped."""


class _Stretch:
    """Neighbouring blocks of the same structure, which run as one loop."""

    def __init__(self, blocks: Sequence[nnx.Module], indices: range, gather: Gather | None):
        self.indices, self.gather = indices, gather
        self.template = blocks[indices[0]]
        self.graph, self.leaves = nnx.graphdef(self.template), leaves(self.template)
        every = [_numbers(blocks[index]) for index in indices]
        values = {place: np.array([each[place] for each in every]) for place in every[0]}  # (blocks,)
        self.numbers = {place: column for place, column in values.items() if np.ptp(column)}

    def run(
        self,
        loop: Loop,
        params: Params,
        x: jax.Array,
        rotations: Sequence[Rotation | None],
        rngs: nnx.Rngs | None,
        valid: jax.Array | None,
    ) -> jax.Array:
        """Run the blocks: tokens (B, N, D) before the first to tokens after the last."""
        turns = [rotations[index] for index in self.indices]
        together = all(turn is turns[0] for turn in turns)

        def block(x: jax.Array, layer: _Layer, rngs: Any = None) -> jax.Array:
            rotation = turns[0] if together else layer.rotation
            rngs = rngs if layer.keys is None else _Keys(layer.keys)
            return self.build(layer)(x, rotation=rotation, valid=valid, rngs=rngs)[0]

        layers = _Layer(
            [self.stacked(params, leaf.name) for leaf in self.leaves],
            list(self.numbers.values()),
            None if together else jax.tree.map(lambda *each: jnp.stack(each), *turns),
            None,
        )
        alone = len(turns) == 1
        first = layers if alone else jax.tree.map(lambda each: each[0], layers)
        if rngs is not None:
            jax.eval_shape(partial(block, rngs=(counter := _Counter())), x, first)
            keys = _next_keys(rngs, len(turns), counter.count) if counter.count else None
            layers = layers._replace(keys=keys)
        one = _again(block, loop, self.gather is not None)
        if alone:
            return one(x, first._replace(keys=None if layers.keys is None else layers.keys[0]))
        return jax.lax.scan(lambda x, layer: (one(x, layer), None), x, layers)[0]

    def stacked(self, params: Params, name: str) -> jax.Array:
        """Return a parameter of all blocks, by its name in one: (blocks, ...); a single block's
        as it is."""
        together = stack_name(self.indices, name)
        if together in params:
            return params[together]
        own = [params[member] for member in members(together)]
        return jnp.stack(own) if len(own) > 1 else own[0]

    def build(self, layer: _Layer) -> Callable[..., Any]:
        """Build one block from its values."""
        first, params = self.indices[0], layer.params
        if self.gather is not None:  # all blocks are split like the first
            names = [f"blocks.{first}.{leaf.name}" for leaf in self.leaves]
            params = self.gather(dict(zip(names, params, strict=True))).values()
        state = [(leaf.path, nnx.Param(x)) for leaf, x in zip(self.leaves, params, strict=True)]
        block: Any = nnx.merge(self.graph, nnx.from_flat_state(state))
        modules = dict(walk(block))
        for (path, name), number in zip(self.numbers, layer.numbers, strict=True):
            setattr(modules[path], name, number)
        return block


def _again(block: Callable[..., jax.Array], loop: Loop, gathers: bool) -> Callable[..., jax.Array]:
    """Wrap a block so that its backward pass recomputes the activations that `loop` names."""
    if loop.remat == "none" and not gathers:
        return block
    policies = {"none": _all_but_gathered, "full": None}
    policy = policies.get(loop.remat) or getattr(jax.checkpoint_policies, loop.remat, None)
    # in a loop XLA does not merge the two computations, and need not be kept from it
    return jax.checkpoint(block, policy=policy, prevent_cse=not loop.scan)


def _all_but_gathered(primitive: Any, *_: Any, **params: Any) -> bool:
    """Keep everything, except gathered parameters: a policy of `jax.checkpoint`."""
    inside = getattr(params.get("call_jaxpr"), "eqns", ())  # it has a derivative of its own
    names = {primitive.name, *(eqn.primitive.name for eqn in inside)}
    return names.isdisjoint(("sharding_constraint", "all_gather"))


class _Keys:
    """Random keys in place of a stream: one for each draw of a block, in order."""

    def __init__(self, keys: jax.Array):
        self._keys = iter(keys)

    def dropout(self) -> jax.Array:
        """Return the next key."""
        return next(self._keys)


class _Counter:
    """A stand-in for a stream that counts the keys a block takes."""

    count = 0

    def dropout(self) -> jax.Array:
        """Count a draw and return some key."""
        self.count += 1
        return jax.random.key(0)


def _next_keys(rngs: nnx.Rngs, blocks: int, draws: int) -> jax.Array:
    """Take the next keys of a stream, (blocks, draws), those of as many calls of ``rngs.dropout()``."""
    stream = rngs.dropout
    counts = stream.count[...] + jnp.arange(blocks * draws, dtype=jnp.uint32)
    stream.count[...] += blocks * draws
    keys = jax.vmap(lambda count: jax.random.fold_in(stream.key[...], count))(counts)
    return keys.reshape(blocks, draws)
