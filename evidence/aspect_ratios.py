"""Print how far an image in a padded batch is from the same image alone: the table of docs/naflex.md.

python -m evidence.aspect_ratios
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import tyro

from parity.measure.error import relative_error
from parity.measure.redraw import redraw
from parity.measure.tolerance import FLOAT64
from vit_config import PRESETS, ViTConfig
from vit_config.images.patches import Patches, collate, size_within
from vit_config.parameters import parameters
from vit_jax.functional import get_params, make_apply
from vit_jax.weights import from_arrays as jax_model
from vit_torch.weights import from_arrays as torch_model

NAMES = [name for name in PRESETS if name.startswith(("naflexvit", "gemma4")) and "_enc" not in name]
"""Presets; those of Gemma 4 pool no squares, which would have to divide every grid."""
MOST = 64
"""Patches of an image at most."""


@dataclass(frozen=True)
class Options:
    """Compare images of many aspect ratios alone and in padded batches, in float64; 1 if they differ."""

    ratios: int = 200
    """Images, each of another aspect ratio."""
    batch: int = 25
    """Images in one padded batch."""
    compiled: int = 2
    """Architectures that the JAX twin runs too, which compiles a program for each number of patches."""


def sizes(count: int) -> list[tuple[int, int]]:
    """Sizes from a column of patches to a row of them, all within the budget: whole patches each."""
    ratios = np.exp(np.linspace(-np.log(MOST), np.log(MOST), count))
    stream = np.random.default_rng(0)
    sides = stream.uniform(4, 900, count)
    raw = [(max(int(s), 1), max(int(s * r), 1)) for s, r in zip(sides, ratios, strict=True)]
    return [size_within(size, (16, 16), MOST) for size in raw]


def small(cfg: ViTConfig) -> ViTConfig:
    """The architecture in two narrow blocks, every switch as it is."""
    changes = {"hidden_size": 24, "depth": 2, "num_heads": 3, "mlp_dim": 40, "num_classes": 7}
    table = (MOST, MOST) if cfg.pos_embed_resize == "leading_rows" else (4, 5)
    return cfg.replace(**changes, pos_embed_grid=table, pool_num_heads=None, pool_mlp_dim=None)


def weights(cfg: ViTConfig) -> dict[str, np.ndarray]:
    """Random parameters by the twins' names."""
    return {name: redraw(name, each.kind, each.shape, 0) for name, each in parameters(cfg).items()}


def worst(
    run: Callable[[Patches], np.ndarray], images: list[np.ndarray], batch: int
) -> tuple[float, int]:
    """The largest error of an image in a padded batch, and how many images keep every bit."""
    errors, same = [], 0
    for begin in range(0, len(images), batch):
        some = images[begin : begin + batch]
        padded = collate(some, (16, 16), MOST + 3)
        padded.pixels[~padded.valid] = np.nan
        together = run(padded)
        for row, image in zip(together, some, strict=True):
            (alone,) = run(collate([image], (16, 16)))
            errors.append(relative_error(row, alone))
            same += np.array_equal(row, alone)
    return max(errors), same


def in_torch(cfg: ViTConfig, arrays: dict[str, np.ndarray]) -> Callable[[Patches], np.ndarray]:
    """The PyTorch twin."""
    model = torch_model(cfg, arrays)

    def run(batch: Patches) -> np.ndarray:
        with torch.no_grad():
            return model.logits(Patches(*map(torch.from_numpy, batch))).numpy()

    return run


def in_jax(cfg: ViTConfig, arrays: dict[str, np.ndarray]) -> Callable[[Patches], np.ndarray]:
    """The JAX twin, compiled once for each shape."""
    params = get_params(jax_model(cfg, arrays))
    apply = jax.jit(make_apply(cfg))

    def run(batch: Patches) -> np.ndarray:
        return np.asarray(apply(params, Patches(*map(jnp.asarray, batch))).logits)

    return run


def rows(options: Options) -> Iterator[tuple[str, str, float, int]]:
    """Each architecture and twin, with the largest error and the images that keep every bit."""
    stream = np.random.default_rng(1)
    images = [stream.standard_normal((*size, 3)) for size in sizes(options.ratios)]
    for index, name in enumerate(NAMES):
        cfg = small(PRESETS[name])
        arrays = weights(cfg)
        twins: dict[str, Any] = {"PyTorch": in_torch}
        if index < options.compiled:
            twins["JAX"] = in_jax
        for twin, build in twins.items():
            yield (name, twin, *worst(build(cfg, arrays), images, options.batch))


def main(options: Options) -> int:
    """Print the table; 1 if an image is not what it is alone."""
    grids = {(height // 16, width // 16) for height, width in sizes(options.ratios)}
    print(f"{options.ratios} images, {len(grids)} grids from 1x{MOST} to {MOST}x1 patches\n")
    print("| architecture | twin | largest error | same bits |\n|---|---|--:|--:|")
    largest = 0.0
    with jax.enable_x64(True):
        for name, twin, error, same in rows(options):
            largest = max(largest, error)
            print(f"| {name} | {twin} | {error:.1e} | {same} of {options.ratios} |", flush=True)
    return 0 if largest <= FLOAT64 else 1


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
