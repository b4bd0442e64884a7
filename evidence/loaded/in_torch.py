"""Models of PyTorch's libraries, loaded rightly and not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from evidence.loaded.case import Case, Situation
from evidence.loaded.torch_models import MODELS, Build, built, trained

State = dict[str, torch.Tensor]


def cases() -> Iterator[Case]:
    """Yield each way in a few models, so that each model and each way has its turn."""
    for number, (way, (fits, plant)) in enumerate(WRONG.items()):
        for name in _some(fits, number, 4):
            library, build = MODELS[name]
            yield Case(library, f"{name}: {way}", False, _built(build, plant))
    for number, (way, (fits, load)) in enumerate(RIGHT.items()):
        for name in _some(fits, number, 5):
            library, build = MODELS[name]
            yield Case(library, f"{name}: {way}", True, _built(build, load))


def _some(names: tuple[str, ...], start: int, count: int) -> list[str]:
    return [names[(start * count + step) % len(names)] for step in range(min(count, len(names)))]


def _built(build: Build, way: Callable[[Build, Path], Situation]) -> Callable[[Path], Situation]:
    return lambda folder: way(build, folder)


def saved(state: Any, folder: Path, name: str = "model.pth") -> Path:
    """Save a state dict."""
    torch.save(state, folder / name)
    return folder / name


def copied(model: nn.Module) -> State:
    """Return the state dict of a model, which stays as it is when the model changes."""
    return {name: each.clone() for name, each in model.state_dict().items()}


def _loaded_but(build: Build, folder: Path, change: Callable[[State], Any]) -> Situation:
    """Load a state dict of which something was changed or left out on the way, `strict=False`."""
    source, model = trained(build), built(build)
    path = saved(source.state_dict(), folder)
    state = copied(source)
    change(state)
    model.load_state_dict(state, strict=False)
    return Situation(model, path)


def _without(state: State, pattern: str) -> None:
    names = [name for name in state if re.search(pattern, name)]
    assert names, pattern
    for name in names:
        del state[name]


HEAD = r"^(head\.|fc\.|heads\.|classifier\.|lm_head|cls\.|visual\.proj|head\.fc)"
BLOCK = r"(blocks|layers?|h|encoder_layer|layer1|resblocks|stages|block)[._](1|0)[._]"


def _headless(build: Build, folder: Path) -> Situation:
    return _loaded_but(build, folder, lambda state: _without(state, HEAD))


def _one_block(build: Build, folder: Path) -> Situation:
    def change(state: State) -> None:
        block = next(match[0] for name in state if (match := re.search(BLOCK, name)))
        _without(state, re.escape(block))

    return _loaded_but(build, folder, change)


def _prefix(build: Build, folder: Path) -> Situation:
    source, model = trained(build), built(build)
    state = {f"module.{name}": each for name, each in source.state_dict().items()}
    model.load_state_dict(state, strict=False)
    return Situation(model, saved({"state_dict": state}, folder))


def _whole_checkpoint(build: Build, folder: Path) -> Situation:
    """`load_state_dict(checkpoint)` in place of `checkpoint["model"]`."""
    source, model = trained(build), built(build)
    state = {"model": source.state_dict(), "epoch": 3}
    model.load_state_dict(state, strict=False)
    return Situation(model, saved(state, folder))


def _last(state: State, ndim: int = 2) -> str:
    return [name for name, each in state.items() if each.ndim >= ndim and each.is_floating_point()][-1]


def _exchanged(build: Build, folder: Path) -> Situation:
    """Two tensors of one shape, exchanged: queries and keys, or two norms."""

    def change(state: State) -> None:
        shapes: dict[Any, str] = {}
        for name, each in state.items():
            key = tuple(each.shape), re.sub(r"[^.]*\.[^.]*$", "", name)
            if each.ndim == 2 and key in shapes and each.data_ptr() != state[shapes[key]].data_ptr():
                other = shapes[key]
                state[name], state[other] = state[other], state[name]
                return
            shapes[key] = name
        first, second = [n for n, each in state.items() if n.endswith("bias")][:2]
        state[first], state[second] = state[first] + 1, state[second]

    return _loaded_but(build, folder, change)


def _joined_exchanged(build: Build, folder: Path) -> Situation:
    """Queries and keys exchanged inside the tensor that joins them."""

    def change(state: State) -> None:
        words = ("qkv.weight", "in_proj_weight", "c_attn.weight")
        name = next(name for name in state if name.endswith(words))
        axis = 1 if "c_attn" in name else 0
        q, k, v = state[name].chunk(3, axis)
        state[name] = torch.cat([k, q, v], axis)

    return _loaded_but(build, folder, change)


def _rounded(build: Build, folder: Path) -> Situation:
    def change(state: State) -> None:
        for name, each in state.items():
            state[name] = each.half().to(each.dtype) if each.is_floating_point() else each

    return _loaded_but(build, folder, change)


def _one_rounded(build: Build, folder: Path) -> Situation:
    def change(state: State) -> None:
        name = _last(state)
        state[name] = state[name].bfloat16().to(state[name].dtype)

    return _loaded_but(build, folder, change)


def _statistics(build: Build, folder: Path) -> Situation:
    return _loaded_but(build, folder, lambda state: _without(state, "running_mean"))


def _index(build: Build, folder: Path) -> Situation:
    """Tables of relative positions are not loaded, as where a filter drops what has `relative` in it."""
    return _loaded_but(build, folder, lambda state: _without(state, "relative_position_bias_table"))


def _positions(build: Build, folder: Path) -> Situation:
    """A position table of another size, which is passed over."""
    source, model = trained(build), built(build)
    state = copied(source)
    name = next(name for name in state if re.search(POSITIONS, name))
    table = state[name]
    axis = table.ndim - 2
    more = torch.cat([table, 0.5 * table], axis)
    path = saved({**state, name: more}, folder)
    del state[name]
    model.load_state_dict(state, strict=False)
    return Situation(model, path)


POSITIONS = r"(pos_embed|pos_embedding|positional_embedding|position_embeddings(\.weight)?|wpe\.weight)$"


def _another(build: Build, folder: Path) -> Situation:
    """The checkpoint of another run."""
    path = saved(trained(build, seed=2).state_dict(), folder)
    return Situation(trained(build), path)


@torch.no_grad()
def _trained_on(build: Build, folder: Path) -> Situation:
    source = trained(build)
    path = saved(source.state_dict(), folder)
    for parameter in source.parameters():
        parameter += 1e-4 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))
    return Situation(source, path)


@torch.no_grad()
def _one_number(build: Build, folder: Path) -> Situation:
    source = trained(build)
    path = saved(source.state_dict(), folder)
    list(source.parameters())[-1].view(-1)[0] += 1e-3
    return Situation(source, path)


def _initialised_again(build: Build, folder: Path) -> Situation:
    """`model.apply(init_weights)` after loading, for the linear layers."""
    source = trained(build)
    path = saved(source.state_dict(), folder)
    layers = [m for m in source.modules() if isinstance(m, nn.Linear | nn.Conv2d | nn.Embedding)]
    layers[0].reset_parameters()
    return Situation(source, path)


def _norms(build: Build, folder: Path) -> Situation:
    """Norms of an old file are called gamma and beta, which a loader passes over."""
    source, model = trained(build), built(build)
    norms = {n for n, m in source.named_modules() if "Norm" in type(m).__name__}
    state = {}
    for name, each in source.state_dict().items():
        module, _, last = name.rpartition(".")
        old = {"weight": "gamma", "bias": "beta"}.get(last, last) if module in norms else last
        state[f"{module}.{old}" if module else old] = each
    model.load_state_dict(state, strict=False)
    return Situation(model, saved(state, folder))


def _on_meta(build: Build, folder: Path) -> Situation:
    """One tensor stays without numbers, as where `assign=True` gets a file that lacks it."""
    source = trained(build)
    path = saved(source.state_dict(), folder)
    name, parameter = next(source.named_parameters())
    module, _, last = name.rpartition(".")
    source.get_submodule(module).register_parameter(last, nn.Parameter(parameter.to("meta")))
    return Situation(source, path)


def _bias_nowhere(build: Build, folder: Path) -> Situation:
    """The file has a bias where the model has none."""
    source = trained(build)
    state = copied(source)
    name = next(n for n in state if n.endswith(".weight") and f"{n[:-6]}bias" not in state)
    return Situation(source, saved({**state, f"{name[:-6]}bias": state[name].reshape(-1)[:5]}, folder))


ALL = tuple(MODELS)
BLOCKS = ("vit", "beit", "swin", "tv_vit", "hf_vit", "bert", "gpt2", "llama", "t5", "clip")
WRONG: dict[str, tuple[tuple[str, ...], Callable[[Build, Path], Situation]]] = {
    "prefix module. lost, strict=False": (ALL, _prefix),
    "the checkpoint in place of its model, strict=False": (ALL, _whole_checkpoint),
    "head not in what is loaded": (
        ("vit", "resnet", "tv_vit", "hf_vit", "bert", "swin", "clip", "convnext"), _headless,
    ),
    "one block not loaded": (
        ("vit", "beit", "tv_resnet", "hf_vit", "gpt2", "llama", "clip"), _one_block,
    ),
    "queries and keys, or two layers, exchanged": (
        ("hf_vit", "bert", "llama", "t5", "swinv1"), _exchanged,
    ),
    "queries and keys exchanged in one tensor": (
        ("vit", "swin", "gpt2", "clip", "tv_vit"), _joined_exchanged,
    ),
    "all rounded to float16": (ALL, _rounded),
    "one matrix rounded to bfloat16": (ALL, _one_rounded),
    "running means not loaded": (("resnet", "tv_resnet"), _statistics),
    "tables of relative positions not loaded": (("swin", "beit", "swinv1"), _index),
    "position table of another size passed over": (
        ("vit", "tv_vit", "hf_vit", "gpt2", "clip"), _positions,
    ),
    "another checkpoint": (ALL, _another),
    "trained on": (ALL, _trained_on),
    "one number": (ALL, _one_number),
    "one layer initialised again": (ALL, _initialised_again),
    "norms called gamma and beta": (("vit", "bert", "tv_vit", "hf_vit", "convnext"), _norms),
    "one tensor on the meta device": (ALL, _on_meta),
    "a bias that the model does not have": (("llama", "resnet", "tv_resnet"), _bias_nowhere),
}  # fmt: skip
"""Ways to lose weights, with the models in which each may happen."""


def _as_it_is(build: Build, folder: Path) -> Situation:
    source, model = trained(build), built(build, seed=5)
    model.load_state_dict(source.state_dict())
    return Situation(model, saved(source.state_dict(), folder))


def _fresh(build: Build, folder: Path) -> Situation:
    """A file of a model that was not trained: norms of ones, biases of zeros."""
    source, model = built(build, seed=3), built(build, seed=4)
    model.load_state_dict(source.state_dict())
    return Situation(model, saved(source.state_dict(), folder))


def _trainer(build: Build, folder: Path) -> Situation:
    """A checkpoint of a trainer: a prefix, moments of Adam, numbers beside."""
    source, model = trained(build), built(build)
    model.load_state_dict(source.state_dict())
    state = {f"module.{name}": each for name, each in source.state_dict().items()}
    moments = {n: {"exp_avg": 0.1 * p, "step": 3} for n, (_, p) in enumerate(source.named_parameters())}
    content = {"state_dict": state, "optimizer": {"state": moments}, "epoch": 3}
    return Situation(model, saved(content, folder, "last.ckpt"))


def _average(build: Build, folder: Path) -> Situation:
    """The average of the weights was loaded, which lies beside them under the same names."""
    source, average, model = trained(build), trained(build, seed=6), built(build)
    model.load_state_dict(average.state_dict())
    content = {"model": source.state_dict(), "model_ema": average.state_dict()}
    return Situation(model, saved(content, folder))


def _halved(build: Build, folder: Path) -> Situation:
    source = trained(build)
    return Situation(built(lambda: trained(build).half()), saved(source.state_dict(), folder))


def _widened(build: Build, folder: Path) -> Situation:
    source = trained(build).bfloat16()
    path = saved(source.state_dict(), folder)
    model = built(build)
    model.load_state_dict(source.float().state_dict())
    return Situation(model, path)


def _safetensors(build: Build, folder: Path) -> Situation:
    from safetensors.torch import save_model

    source, model = trained(build), built(build)
    save_model(source, str(folder / "model.safetensors"))
    model.load_state_dict(source.state_dict())
    return Situation(model, folder / "model.safetensors")


def _new_head(build: Build, folder: Path) -> Situation:
    """The head is new, and it is said."""
    situation = _headless(build, folder)
    heads = [name for name in situation.model.state_dict() if re.search(HEAD, name)]
    return situation._replace(apart_from=tuple(heads))


def _in_memory(build: Build, folder: Path) -> Situation:
    source, model = trained(build), built(build)
    state = copied(source)
    model.load_state_dict(state)
    return Situation(model, state)


def _deeper_name(build: Build, folder: Path) -> Situation:
    """The model is a part of a larger one, as in Lightning's modules."""
    source, inner = trained(build), built(build)
    inner.load_state_dict(source.state_dict())
    path = saved(source.state_dict(), folder)
    return Situation(nn.ModuleDict({"network": inner}), path)


RIGHT: dict[str, tuple[tuple[str, ...], Callable[[Build, Path], Situation]]] = {
    "as it is": (ALL, _as_it_is),
    "a file of an untrained model": (ALL, _fresh),
    "a trainer's checkpoint, with a prefix and moments": (ALL, _trainer),
    "the average of two under the same names": (ALL, _average),
    "cast to float16": (ALL, _halved),
    "widened from bfloat16": (ALL, _widened),
    "safetensors": (ALL, _safetensors),
    "a new head, said to be": (("vit", "resnet", "tv_vit", "hf_vit", "swin", "convnext"), _new_head),
    "a state dict in memory": (ALL, _in_memory),
    "inside of another module": (ALL, _deeper_name),
}
"""Ways to load a checkpoint."""
