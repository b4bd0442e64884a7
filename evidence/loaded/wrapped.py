"""Models that are wrapped: DDP, FSDP, torch.compile, adapters of PEFT, tied parameters, meta tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from evidence.loaded.case import Case, Situation
from evidence.loaded.in_torch import copied, saved
from evidence.loaded.torch_models import MODELS, built, trained
from evidence.loaded.torch_models import VIT as SMALL
from parity.porting.reading.libraries.peers import import_timm

VIT, BERT, GPT2 = (MODELS[name][1] for name in ("vit", "bert", "gpt2"))


def cases() -> Iterator[Case]:
    """Yield the cases; those of PEFT only where it is installed."""
    for name, wrap in WRAPPERS.items():
        for loaded in (True, False):
            title = name + ("" if loaded else ": head lost")
            yield Case("torch", title, loaded, partial(_wrapped, wrap=wrap, loaded=loaded))
    yield Case("torch", "meta device, nothing loaded", False, _on_meta, "no numbers")
    yield Case("torch", "meta device, assigned", True, _assigned)
    yield Case(
        "transformers", "tied in the model, two tensors in the file", False, _tied_of_two, "went nowhere"
    )
    yield Case("transformers", "tied in the model, one tensor in the file", True, _tied_of_one)
    yield Case("transformers", "not tied, one tensor in the file", False, _untied, "lm_head")
    yield Case("timm", "half as deep as the file", False, _half, "went nowhere: blocks.{2-3}.*")
    yield Case("timm", "deeper than the file", False, _deeper, "not in")
    yield Case("timm", "the tower alone, of a file with a head", True, _tower)
    yield Case("timm", "a block is another one's copy", False, _copied_block, "blocks.0")
    yield Case("timm", "position table resampled", True, _resampled, "resized")
    yield Case("timm", "position table cut", False, _cut, "cut")
    yield Case("transformers", "more tokens than in the file", False, _more_tokens, "longer")
    yield Case("torchvision", "a backbone by itself, of a file with a head", True, _backbone)
    import_timm()  # declares the operators that torchvision lacks on some machines
    try:
        import peft  # noqa: F401 # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        return
    for name, loaded, build in ADAPTED:
        yield Case("peft", name, loaded, build)


def _wrapped(folder: Path, wrap: Any, loaded: bool) -> Situation:
    source, model = trained(VIT), built(VIT)
    path = saved(source.state_dict(), folder)
    state = copied(source)
    if not loaded:
        del state["head.weight"]
    model.load_state_dict(state, strict=loaded)
    with _alone(folder):
        return Situation(wrap(model), path)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """A group of one process, which stays until the next one is made."""
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()
    distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=0, world_size=1)
    yield


def _fully_sharded(model: Any) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (1,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _fsdp(model: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)


WRAPPERS = {
    "DistributedDataParallel": lambda model: nn.parallel.DistributedDataParallel(model),
    "DataParallel": nn.DataParallel,
    "torch.compile": torch.compile,
    "torch.compile of DistributedDataParallel": lambda model: torch.compile(
        nn.parallel.DistributedDataParallel(model)
    ),
    "fully_shard": _fully_sharded,
    "FullyShardedDataParallel": _fsdp,
}


def _on_meta(folder: Path) -> Situation:
    path = saved(trained(VIT).state_dict(), folder)
    with torch.device("meta"):
        return Situation(VIT(), path)


def _assigned(folder: Path) -> Situation:
    source = trained(VIT)
    with torch.device("meta"):
        model = VIT()
    model.load_state_dict(copied(source), assign=True)
    return Situation(model, saved(source.state_dict(), folder))


def _tied_of_two(folder: Path) -> Situation:
    source = trained(GPT2)
    state = copied(source)
    path = saved({**state, "lm_head.weight": state["lm_head.weight"] + 1}, folder)
    return Situation(source, path)


def _tied_of_one(folder: Path) -> Situation:
    source = trained(GPT2)
    state = copied(source)
    del state["lm_head.weight"]
    return Situation(source, saved(state, folder))


def _untied(folder: Path) -> Situation:
    source = trained(GPT2)
    state = copied(source)
    del state["lm_head.weight"]
    path = saved(state, folder)
    head = nn.Linear(24, 50, bias=False)
    source.lm_head = head
    return Situation(source, path)


def _vit(**changes: Any) -> Any:
    changed = {**SMALL, **changes}
    return lambda: import_timm().create_model("vit_tiny_patch16_224", num_classes=7, **changed)


def _half(folder: Path) -> Situation:
    source, model = trained(_vit(depth=4)), built(_vit(depth=2))
    model.load_state_dict(source.state_dict(), strict=False)
    return Situation(model, saved(source.state_dict(), folder))


def _deeper(folder: Path) -> Situation:
    source, model = trained(_vit(depth=2)), built(_vit(depth=4))
    model.load_state_dict(source.state_dict(), strict=False)
    return Situation(model, saved(source.state_dict(), folder))


def _tower(folder: Path) -> Situation:
    source = trained(VIT)
    path = saved(copied(source), folder)
    source.reset_classifier(0)  # pyright: ignore[reportCallIssue]
    return Situation(source, path)


def _copied_block(folder: Path) -> Situation:
    source: Any = trained(VIT)
    path = saved(copied(source), folder)
    source.blocks[1].load_state_dict(source.blocks[0].state_dict())
    return Situation(source, path)


def _resampled(folder: Path) -> Situation:
    from timm.layers.pos_embed import resample_abs_pos_embed

    source, model = trained(_vit(img_size=40)), built(_vit(img_size=24))
    state = copied(source)
    state["pos_embed"] = resample_abs_pos_embed(state["pos_embed"], [3, 3], [5, 5], num_prefix_tokens=1)
    model.load_state_dict(state)
    return Situation(model, saved(source.state_dict(), folder))


def _cut(folder: Path) -> Situation:
    source, model = trained(_vit(img_size=40)), built(_vit(img_size=24))
    state = copied(source)
    state["pos_embed"] = state["pos_embed"][:, :10]
    model.load_state_dict(state)
    return Situation(model, saved(source.state_dict(), folder))


def _more_tokens(folder: Path) -> Situation:
    source: Any = trained(BERT)
    path = saved(copied(source), folder)
    source.resize_token_embeddings(53)
    return Situation(source, path)


def _backbone(folder: Path) -> Situation:
    source: Any = trained(MODELS["tv_resnet"][1])
    return Situation(nn.Sequential(*list(source.children())[:-1]), saved(copied(source), folder))


def _adapted(kind: str) -> Any:
    """A ViT with LoRA, trained, and what was done with it."""

    def build(folder: Path) -> Situation:
        import peft  # pyright: ignore[reportMissingImports]

        base, source = copied(trained(VIT)), trained(VIT)
        config = peft.LoraConfig(r=2, target_modules=["qkv"], modules_to_save=["head"])
        model = peft.get_peft_model(source, config)
        path = saved(base, folder)
        if kind == "base":
            return Situation(model, path)
        if kind == "base lost":
            fresh = peft.get_peft_model(built(VIT), config)
            return Situation(fresh, path)
        with torch.no_grad():
            for name, each in model.named_parameters():
                if "lora_B" in name or "modules_to_save" in name:
                    each.normal_()
        model.save_pretrained(folder / "adapter")
        if kind == "whole":
            return Situation(model, saved(model.state_dict(), folder, "whole.pth"))
        if kind == "merged":
            merged = saved(copied(model.merge_and_unload()), folder, "merged.pth")
            return Situation(model.merge_and_unload(), merged)
        if kind == "merged for base":
            return Situation(model.merge_and_unload(), path)
        again = peft.get_peft_model(built(VIT), config)
        if kind == "adapter":
            again = peft.PeftModel.from_pretrained(built(VIT), folder / "adapter")
        return Situation(again, folder / "adapter")

    return build


ADAPTED = (
    ("LoRA of PEFT, the base", True, _adapted("base")),
    ("LoRA of PEFT, the adapter", True, _adapted("adapter")),
    ("LoRA of PEFT, both in one file", True, _adapted("whole")),
    ("LoRA of PEFT, merged", True, _adapted("merged")),
    ("LoRA of PEFT, the base lost", False, _adapted("base lost")),
    ("LoRA of PEFT, the adapter lost", False, _adapted("adapter lost")),
    ("LoRA of PEFT, merged, for the base", False, _adapted("merged for base")),
)
