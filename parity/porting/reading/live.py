"""A PyTorch model or a state dict in memory as an opened checkpoint.

Tensors are shared with the model, not copied. What no shape shows is read from the model's own modules
or from its config; a state dict has neither, and what it leaves open is asked for.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from parity.porting.formats.base import Container, Stored
from parity.porting.opening.opened import Live, Opened, open_checkpoint
from parity.porting.recognition.heads import WORDS
from vit_config import InputError

BLOCKS = {
    "Block": "pre_norm", "EvaBlock": "pre_norm", "ParallelThingsBlock": "pre_norm",
    "ResPostBlock": "res_post", "EvaBlockPostNorm": "res_post",
}  # fmt: skip
"""Kinds of block by timm's classes, where names and shapes do not tell."""
POOLS = {"token": "class", "avg": "mean", "map": "map", "tok": "class"}
"""Poolings by the names of timm and open_clip."""


def open_source(source: str | Path | Opened | Any) -> Opened:
    """Open whatever a checkpoint is read from; what is open already is returned."""
    if isinstance(source, Opened):
        return source
    return open_checkpoint(source) if isinstance(source, str | Path) else open_live(source)


def open_live(source: Any) -> Opened:
    """Open a model or a state dict in memory, as `open_checkpoint` opens a file.

    Args:
        source: a `torch.nn.Module`, such as a model of timm, transformers, torchvision or open_clip, or
            one of them with adapters of PEFT, which a copy of it merges; or a mapping from names to
            tensors of PyTorch, or to numpy arrays in PyTorch's layout.

    Raises:
        InputError: neither.
    """
    if isinstance(source, Mapping):
        return _opened("state dict", source)
    name, library = type(source).__qualname__, type(source).__module__.partition(".")[0]
    if library in ("vit_jax", "vit_torch"):
        raise InputError(
            f"{library}.{name} is a twin already; to_jax and to_torch turn one into the other,"
            " save_pretrained writes it for another library"
        )
    if not callable(getattr(source, "state_dict", None)):
        raise InputError(
            f"{library}.{name} is no checkpoint; give a path, a name on the Hub, a torch.nn.Module or a"
            " state dict"
        )
    if library == "peft" and hasattr(source, "merge_and_unload"):
        return open_live(copy.deepcopy(source).merge_and_unload(safe_merge=True))
    is_module = callable(getattr(source, "named_modules", None))
    source = _plain(source) if is_module else source
    name_heads = partial(_with_plain_heads, source) if is_module else dict
    if library == "transformers":
        from parity.porting.reading.libraries.of_transformers import name_tensors

        config = {**source.config.to_dict(), "architectures": [name]}
        return _opened(name, name_heads(name_tensors(source)), sidecars={"config.json": config})
    if library not in FACTS:
        return _opened(name, name_heads(source.state_dict()))
    facts = {field: value for field, value in FACTS[library](source).items() if value is not None}
    from parity.porting.reading.live_check import refuse_another_function

    live = Live(source, facts, partial(refuse_another_function, source)) if facts else None
    return _opened(name, name_heads(source.state_dict()), live=live, sidecars=_sidecars(source))


def _plain(source: Any) -> Any:
    """Return a model whose parameters are weights: a copy without torch's parametrizations and
    weight_norm, which compute them; the model itself if it has none."""
    from torch import nn
    from torch.nn.utils import remove_weight_norm

    def older(module: Any) -> list[str]:
        own = module._parameters
        return [name[:-2] for name in own if name.endswith("_g") and f"{name[:-2]}_v" in own]

    computed = [m for m in source.modules() if hasattr(m, "parametrizations") or older(m)]
    if not computed:
        return source
    held = [getattr(each, name) for each in computed for name in older(each)]
    source = copy.deepcopy(source, {id(each): each.detach().clone() for each in held})
    for module in source.modules():
        for name in older(module):
            remove_weight_norm(module, name)
        if hasattr(module, "parametrizations"):  # torch's own removal changes the class, which is shared
            values = {name: getattr(module, name).detach() for name in module.parametrizations}
            del module.parametrizations
            module.__class__ = type(module).__bases__[0]
            for name, value in values.items():
                module.register_parameter(name, nn.Parameter(value))
    return source


def _with_plain_heads(model: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """Name a head that is one linear layer among layers of training, such as dropout, as a linear layer
    by itself: in evaluation it is one."""
    from torch import nn

    named = dict(state)
    for name, module in model.named_modules():
        if not isinstance(module, nn.Sequential) or name.split(".")[-1] not in WORDS:
            continue
        linear = [key for key, each in module.named_children() if isinstance(each, nn.Linear)]
        others = [each for each in module if not isinstance(each, nn.Linear | nn.Dropout | nn.Identity)]
        if len(linear) == 1 and linear[0].isdigit() and not others:
            begin = f"{name}.{linear[0]}."
            named = {
                f"{name}.{n.removeprefix(begin)}" if n.startswith(begin) else n: t
                for n, t in named.items()
            }
    return named


def _opened(name: str, state: Mapping[str, Any], **more: Any) -> Opened:
    sidecars = more.pop("sidecars", {})
    tensors = {key: _stored(each) for key, each in state.items() if hasattr(each, "shape")}
    kind = "torch" if any(hasattr(each, "detach") for each in state.values()) else "arrays"
    container = Container(Path(name), (), f"{kind} (in memory)", tensors, sidecars=sidecars)
    return Opened(container, name, **more)


def _stored(tensor: Any) -> Stored:
    """Describe a tensor or an array; its values are read when they are used."""
    if not hasattr(tensor, "detach"):
        return Stored.of(np.asarray(tensor))
    from vit_torch.weights import to_numpy

    one = to_numpy(tensor.new_zeros(1))  # its type, in numpy's words
    return Stored(tuple(tensor.shape), one.dtype, lambda: to_numpy(tensor, copy=False))


def _sidecars(model: Any) -> dict[str, Any]:
    """Return the config.json that timm would write of a model, without the arguments it was built by."""
    pretrained = getattr(model, "pretrained_cfg", None)
    if not pretrained or not pretrained.get("architecture"):
        return {}
    config = {key: list(each) if isinstance(each, tuple) else each for key, each in pretrained.items()}
    return {"config.json": {"architecture": pretrained["architecture"], "pretrained_cfg": config}}


def _timm(model: Any) -> Iterator[tuple[str, Any]]:
    blocks = model.blocks
    yield "num_heads", first(blocks, "num_heads")
    yield "norm_eps", first(blocks, "eps")
    yield (
        "act",
        act_of(next((m for n, m in blocks.named_modules() if n.endswith((".act", "act"))), None)),
    )
    yield "block", BLOCKS.get(type(blocks[0]).__name__)
    yield "pool", POOLS.get(model.global_pool)
    yield "pool_prefix", getattr(model, "pool_include_prefix", None)
    yield "image_size", getattr(model.patch_embed, "img_size", None)
    if (pool := getattr(model, "attn_pool", None)) is not None:
        yield "pool_num_heads", pool.num_heads


def _torchvision(model: Any) -> Iterator[tuple[str, Any]]:
    layers = model.encoder.layers
    yield "num_heads", first(layers, "num_heads")
    yield "norm_eps", first(layers, "eps")
    yield "act", act_of(layers[0].mlp[1])
    yield "image_size", (model.image_size, model.image_size)


def _open_clip(model: Any) -> Iterator[tuple[str, Any]]:
    tower = getattr(model, "visual", model)
    blocks = tower.transformer.resblocks
    yield "num_heads", first(blocks, "num_heads")
    yield "norm_eps", first(blocks, "eps")
    yield "act", act_of(blocks[0].mlp.gelu)
    yield "pool", POOLS.get(tower.pool_type)
    yield "image_size", tuple(tower.image_size)


def _facts(read: Callable[[Any], Iterator[tuple[str, Any]]]) -> Callable[[Any], dict[str, Any]]:
    """Return what modules state, as far as they are of the library's Vision Transformer."""

    def facts(model: Any) -> dict[str, Any]:
        stated: dict[str, Any] = {}
        with suppress(AttributeError, IndexError, TypeError):  # another class: the rest is asked for
            for field, value in read(model):
                stated[field] = value
        return stated

    return facts


FACTS = {"timm": _facts(_timm), "torchvision": _facts(_torchvision), "open_clip": _facts(_open_clip)}
"""Reads the schema's fields that a library's modules state, by the library's name."""


def first(modules: Any, attribute: str) -> Any:
    """Return an attribute of the first module that has it; None if none has."""
    return next((getattr(m, attribute) for m in modules.modules() if hasattr(m, attribute)), None)


def act_of(module: Any) -> str | None:
    """Return the activation that a module computes; None if it is none that a schema has."""
    if module is None:
        return None
    import torch

    from vit_torch.mlp import ACTIVATIONS

    x = torch.linspace(-4, 4, 33, dtype=torch.float64)
    with torch.no_grad():
        y = module(x.clone())
        fits = [
            name for name, act in ACTIVATIONS.items() if torch.allclose(act(x), y, rtol=0, atol=1e-9)
        ]
    return fits[0] if len(fits) == 1 else None
