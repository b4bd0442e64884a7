"""A folder of many small checkpoints, of every ecosystem, some of them broken."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from safetensors.numpy import load_file, save_file

from parity.porting.fleet import run_manifest
from parity.porting.fleet.ledger import LEDGER
from parity.porting.writing.conversion import convert
from tests.support.tiny import TINY
from vit_config import Preprocess, write_weights
from vit_config.parameters import parameters

CFG = TINY.replace(image_size=10, patch_size=5)
LOCK = f".{LEDGER}.lock"
"""What a run holds while it writes."""
KINDS = ("parity", "timm", "hf", "torchvision", "google", "big-vision")
"""Dialects, in the order in which they take turns."""
SUFFIXES = {"parity": ".safetensors", "torchvision": ".pth", "google": ".npz", "big-vision": ".npz"}
"""Of their files; the others are folders."""
ANSWER = {"num_heads": CFG.num_heads}
"""What torchvision's files leave open."""
BROKEN = {
    "broken/canary.pth": "mkdir",
    "broken/empty.safetensors": "is empty",
    "broken/page.bin": "web page",
    "broken/renamed.pth": "encoder.layers.encoder_layer_1.self_attention.in_proj_wait",
    "broken/shards/model.safetensors.index.json": "model-00002-of-00002.safetensors: no such file",
    "broken/truncated.safetensors": "truncated",
}
"""Files that cannot be converted, and what is said of each."""
REFUSED = ("broken/renamed.pth",)
"""Those that are sound."""


class Canary:
    """A pickle that makes a folder when it is loaded."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def own_file(path: Path, seed: int, *, act: str = "gelu", license: str | None = "mit") -> None:
    """A file of the project's own."""
    cfg, random = CFG.replace(act=act), np.random.default_rng(seed)
    arrays = {
        name: random.standard_normal(each.shape).astype(np.float32)
        for name, each in parameters(cfg).items()
    }
    preprocess = Preprocess(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), license=license)
    write_weights(path, cfg, arrays, preprocess)


def forget(path: Path) -> None:
    """Save a torch file again as torch does, without what its comment says of it."""
    torch.save(torch.load(path, weights_only=True), path)


def fill(folder: Path, count: int) -> list[str]:
    """Put `count` good checkpoints and all `BROKEN` ones into a folder.

    Returns:
        The paths of the good ones, as a manifest has them.
    """
    folder.mkdir()
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "README.md").write_text("not a checkpoint")
    names = []
    for index in range(count):
        kind = KINDS[index % len(KINDS)]
        own = folder.parent / "own.safetensors"
        jax_born = kind in ("google", "big-vision")
        own_file(own, index, act="gelu_tanh" if jax_born else "gelu")
        suffix = SUFFIXES.get(kind, "")
        name = f"{['', 'deep/', 'deep/er/'][index % 3]}{kind}_{index}{suffix}"
        if kind == "parity":
            shutil.copy(own, folder / name)
        else:
            convert(own, to=kind, out=folder / name)
        if kind == "torchvision":
            forget(folder / name)
        names.append(name)
    own_file(folder.parent / "own.safetensors", 0)
    _break(folder / "broken", folder.parent / "own.safetensors")
    return sorted(names)


def _break(folder: Path, own: Path) -> None:
    (folder / "shards").mkdir(parents=True)
    content = own.read_bytes()
    (folder / "truncated.safetensors").write_bytes(content[:-100])
    (folder / "empty.safetensors").write_bytes(b"")
    (folder / "page.bin").write_bytes(b"<html><body>Not found</body></html>")
    torch.save({"head.weight": Canary(folder.parent / "trace")}, folder / "canary.pth")
    convert(own, to="torchvision", out=folder / "renamed.pth")
    state = torch.load(folder / "renamed.pth")
    layer = "encoder.layers.encoder_layer_1.self_attention.in_proj"
    state[f"{layer}_wait"] = state.pop(f"{layer}_weight")
    torch.save(state, folder / "renamed.pth")
    convert(own, to="timm", out=folder.parent.parent / "timm.safetensors")
    arrays = load_file(folder.parent.parent / "timm.safetensors")
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    places = {name: names[index % 2] for index, name in enumerate(arrays)}
    save_file({n: a for n, a in arrays.items() if places[n] == names[0]}, folder / "shards" / names[0])
    index = {"metadata": {}, "weight_map": places}
    (folder / "shards/model.safetensors.index.json").write_text(json.dumps(index))


def answer(manifest: Path, **answers: object) -> None:
    """Fill in what a manifest asks for, as a user does."""
    content = json.loads(manifest.read_text())
    for job in content["checkpoints"]:
        if job["status"] == "ask":
            job["set"] |= {name: answers[name] for name in job["set"]}
    manifest.write_text(json.dumps(content))


def run(path, *, to="parity", **options):
    """Convert the rows of a manifest; return the exit status."""
    with open(os.devnull, "w") as nowhere:
        return run_manifest(path, to=to, console=Console(file=nowhere), **options)


def lines(out: Path) -> list[dict[str, Any]]:
    """What a run wrote of each row."""
    return [json.loads(line) for line in (out / LEDGER).read_text().splitlines()]


def contents(out: Path) -> dict[str, bytes]:
    """Every file that a run wrote, but those of its own."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.name not in (LEDGER, LOCK)
    }
