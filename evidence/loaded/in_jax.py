"""Models of NNX and Linen, and files that Orbax, Flax and NumPy write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from flax import linen, nnx, serialization, traverse_util

from evidence.loaded.case import Case, Situation


class Cell(nnx.Module):
    """A convolution, its norm and two square layers."""

    def __init__(self, width: int, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(width, width, (3, 2), rngs=rngs)
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.query = nnx.Linear(width, width, rngs=rngs)
        self.key = nnx.Linear(width, width, rngs=rngs)
        self.up = nnx.Linear(width, 2 * width, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)


class Stack(nnx.Module):
    """Cells, a table and a head."""

    def __init__(self, seed: int = 0, width: int = 12, depth: int = 3) -> None:
        rngs = nnx.Rngs(seed)
        self.table = nnx.Embed(20, width, rngs=rngs)
        self.cells = nnx.List([Cell(width, rngs) for _ in range(depth)])
        self.head = nnx.Linear(width, 7, rngs=rngs)


class LinenCell(linen.Module):
    """The same in Linen."""

    width: int

    @linen.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        x = linen.Conv(self.width, (3, 2))(x)
        x = linen.BatchNorm(use_running_average=not train)(x)
        gate = linen.Dense(self.width, name="query")(x) * linen.Dense(self.width, name="key")(x)
        return linen.Dense(self.width, name="down")(linen.Dense(2 * self.width, name="up")(gate))


class LinenStack(linen.Module):
    """Cells and a head."""

    width: int = 12
    depth: int = 3

    @linen.compact
    def __call__(self, x: Any) -> Any:
        for number in range(self.depth):
            x = LinenCell(self.width, name=f"cells_{number}")(x)
        return linen.Dense(7, name="head")(x.mean((1, 2)))


Tree = dict[str, Any]


def _flat(tree: Tree) -> dict[str, Any]:
    return {str(name): each for name, each in traverse_util.flatten_dict(tree, sep="/").items()}


def _drawn(tree: Tree, seed: int = 1) -> Tree:
    rng = np.random.default_rng(seed)
    flat = _flat(tree)
    return traverse_util.unflatten_dict(
        {
            name: jnp.asarray(np.abs(rng.normal(1, 0.2, each.shape)) if name.endswith(("scale", "var"))
                              else rng.normal(0, 0.2, each.shape), each.dtype)
            for name, each in flat.items()
        },
        sep="/",
    )  # fmt: skip


def _nnx_state(model: Stack) -> Tree:
    wanted = nnx.state(model, (nnx.Param, nnx.BatchStat))
    flat = {"/".join(map(str, path)): each.get_value() for path, each in nnx.to_flat_state(wanted)}
    return traverse_util.unflatten_dict(flat, sep="/")


def _nnx_with(tree: Tree) -> Stack:
    model = Stack(seed=4)
    flat = _flat(tree)
    state = nnx.state(model, (nnx.Param, nnx.BatchStat))
    for path, variable in nnx.to_flat_state(state):
        variable.set_value(flat["/".join(map(str, path))])
    nnx.update(model, state)
    return model


def _linen_fresh(seed: int = 0) -> Tree:
    return dict(LinenStack().init(jax.random.key(seed), jnp.zeros((1, 5, 4, 12))))


def _linen_with(tree: Tree) -> Any:
    return LinenStack(), tree, np.zeros((1, 5, 4, 12), np.float32)


def _orbax(tree: Tree, folder: Path) -> Path:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder.resolve() / "state", tree)
    return folder / "state"


def _train_state(tree: Tree, folder: Path) -> Path:
    """What a training loop saves: the parameters, and Adam's moments under the same names."""
    moments = jax.tree.map(lambda each: 0.1 * each, tree)
    return _orbax(
        {"params": tree, "opt_state": {"0": {"mu": moments, "nu": moments}}, "step": 3}, folder
    )


def _msgpack(tree: Tree, folder: Path) -> Path:
    (folder / "model.msgpack").write_bytes(serialization.to_bytes(tree))
    return folder / "model.msgpack"


def _npz(tree: Tree, folder: Path) -> Path:
    np.savez(folder / "model.npz", **_flat(tree))
    return folder / "model.npz"


def _torch(tree: Tree, folder: Path) -> Path:
    """The same model by PyTorch's names and layouts."""
    words = {"kernel": "weight", "scale": "weight", "embedding": "weight", "mean": "running_mean",
             "var": "running_var"}  # fmt: skip
    arrays = {}
    for name, each in _flat(tree).items():
        *front, last = name.removeprefix("params/").removeprefix("batch_stats/").split("/")
        array = np.asarray(each)
        turned = (
            array.T if array.ndim == 2 else array.transpose(3, 2, 0, 1) if array.ndim == 4 else array
        )
        arrays[".".join([*front, words.get(last, last)])] = turned if last == "kernel" else array
    np.savez(folder / "torch.npz", **arrays)
    return folder / "torch.npz"


def _leave(*words: str) -> Callable[[Tree, Tree], Tree]:
    """Take from the fresh tree whatever has one of these words in its name."""

    def change(tree: Tree, fresh: Tree) -> Tree:
        flat, new = (_flat(each) for each in (tree, fresh))
        chosen = {name: any(word in name for word in words) for name in flat}
        assert any(chosen.values()), words
        return traverse_util.unflatten_dict(
            {name: new[name] if chosen[name] else flat[name] for name in flat}, sep="/"
        )

    return change


def _exchange(one: str, other: str) -> Callable[[Tree, Tree], Tree]:
    def change(tree: Tree, fresh: Tree) -> Tree:
        flat = _flat(tree)
        names = {name: name.replace(one, "*").replace(other, one).replace("*", other) for name in flat}
        return traverse_util.unflatten_dict({name: flat[names[name]] for name in flat}, sep="/")

    return change


def _turn(tree: Tree, fresh: Tree) -> Tree:
    flat = _flat(tree)
    square = [name for name, each in flat.items() if each.ndim == 2 and each.shape[0] == each.shape[1]]
    return traverse_util.unflatten_dict({**flat, **{n: flat[n].T for n in square}}, sep="/")


def _cast(tree: Tree, fresh: Tree) -> Tree:
    return jax.tree.map(lambda each: each.astype(jnp.bfloat16).astype(each.dtype), tree)


MISTAKES: dict[str, Callable[[Tree, Tree], Tree]] = {
    "nothing loaded": lambda tree, fresh: fresh,
    "one cell not loaded": _leave("cells/1", "cells_1"),
    "statistics not loaded": _leave("mean", "var"),
    "head not loaded": _leave("head"),
    "two cells exchanged": lambda tree, fresh: _exchange("cells/1", "cells/2")(
        _exchange("cells_1", "cells_2")(tree, fresh), fresh
    ),
    "query and key exchanged": _exchange("query", "key"),
    "square matrices not transposed": _turn,
    "rounded to bfloat16": _cast,
}
SAVED: dict[str, Callable[[Tree, Path], Path]] = {
    "Orbax": _orbax,
    "Orbax, with Adam's moments": _train_state,
    "msgpack": _msgpack,
    "npz": _npz,
    "PyTorch's names and layouts": _torch,
}


def cases() -> Iterator[Case]:
    """Yield each way to save rightly, and each mistake with ways to save in turn."""
    for library, make, fresh in (
        ("flax nnx", _nnx_with, lambda seed=0: _nnx_state(Stack(seed))),
        ("flax linen", _linen_with, _linen_fresh),
    ):
        for saved in SAVED:
            for kind in ("drawn", "untrained"):
                yield Case(library, f"{saved}, {kind}", True, _case(make, fresh, saved, kind, None))
        for number, mistake in enumerate(MISTAKES):
            for step in (0, 4) if mistake != "square matrices not transposed" else (4,):
                saved = list(SAVED)[(number + step) % len(SAVED)]
                if mistake.startswith("square"):
                    saved = "PyTorch's names and layouts"
                yield Case(
                    library, f"{saved}: {mistake}", False, _case(make, fresh, saved, "drawn", mistake)
                )


def _case(
    make: Callable[[Tree], Any], fresh: Callable[..., Tree], saved: str, kind: str, mistake: str | None
) -> Callable[[Path], Situation]:
    def build(folder: Path) -> Situation:
        tree = fresh(3) if kind == "untrained" else _drawn(fresh())
        path = SAVED[saved](tree, folder)
        if mistake is not None:
            tree = MISTAKES[mistake](tree, fresh(5))
        return Situation(make(tree), path)

    return build
