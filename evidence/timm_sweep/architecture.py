"""One architecture of timm against the twins: first the tensors of the real model, then the function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np

from parity.measure.compiling import compile_quickly
from parity.measure.error import relative_error
from parity.measure.judged import LevelResult
from parity.measure.recording import Recording
from parity.measure.redraw import Batch, branch_norms, random_batch, redraw
from parity.measure.site import output_site
from parity.measure.tolerance import FLOAT64
from parity.twins.judge import Runs, compare
from vit_config import PRESETS, InputError, ViTConfig
from vit_config.errors import first_line

if TYPE_CHECKING:
    import torch
    from torch import nn

    from parity.twins.run_jax import JaxTwin

OUTPUTS = ("tokens", "pooled", "logits")
"""Outputs compared with timm's: all tokens after the last norm, the head's input, the logits."""


MOST_BYTES = 24 * 2**30
"""Bytes that a backward pass may keep of one image."""


@dataclass(frozen=True)
class ArchitectureResult:
    """The result of one architecture."""

    name: str
    module: str
    """The module of timm that defines it."""
    parameters: int = 0
    tensors: int = 0
    to_timm: dict[str, dict[str, float]] = field(default_factory=dict)
    """Relative error of each output, by twin."""
    twins: dict[str, float] = field(default_factory=dict)
    """Largest relative difference between the twins, by level."""
    problems: tuple[str, ...] = ()
    """Everything that is wrong; empty if nothing is."""

    @property
    def passed(self) -> bool:
        """Whether names, shapes and numbers all agree."""
        return not self.problems


def check_all(
    names: dict[str, str], *, processes: int, full_size: bool, seed: int
) -> Iterator[ArchitectureResult]:
    """Check architectures, those of equal small schemas one after the other in one process.

    Args:
        names: timm's module of each architecture, by the architecture's name.
        processes: number of processes; 1 works in this process.
        full_size: do not shrink the models.
    """
    groups: dict[Any, list[str]] = {}
    for name in names:
        alone = full_size or name not in PRESETS
        groups.setdefault(name if alone else _likeness(PRESETS[name]), []).append(name)
    tasks = [[(name, names[name]) for name in group] for group in groups.values()]
    if processes == 1:
        for task in tasks:
            yield from _check_group(task, full_size, seed)
        return
    with ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=compile_quickly
    ) as pool:
        pending = [pool.submit(_check_group, task, full_size, seed) for task in tasks]
        try:
            for future in as_completed(pending):
                yield from future.result()
        except BrokenProcessPool:
            raise InputError(
                "a process was killed from outside, most likely out of memory; try --processes 1"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _likeness(cfg: ViTConfig) -> ViTConfig:
    """Return one schema for architectures that differ in size only: most shrink to the same model."""
    return cfg.replace(
        image_size=tuple(side * (cfg.pool_window or 1) for side in cfg.patch_size),
        patch_remainder="refuse",
        depth=1,
        hidden_size=8,
        num_heads=2,
        num_kv_heads=None,
        mlp_dim=round(8 * cfg.mlp_dim / cfg.hidden_size),
        num_classes=min(cfg.num_classes, 1),
        layer_scale=cfg.layer_scale and 1.0,
        pos_embed_grid=cfg.pos_embed_grid and cfg.patch_size,
        pool_num_heads=None,
    )


def _check_group(
    names: Sequence[tuple[str, str]], full_size: bool, seed: int
) -> list[ArchitectureResult]:
    return [check_architecture(*name, full_size=full_size, seed=seed) for name in names]


def check_architecture(
    name: str, module: str, *, full_size: bool = False, seed: int = 0
) -> ArchitectureResult:
    """Compare one architecture of timm with the twins, in float64, every tensor re-drawn.

    The tensors' names and shapes are those of the real model; the numbers are those of a copy shrunk in
    depth and width, every switch intact, unless `full_size`.
    """
    from evidence.timm_sweep import peer
    from evidence.timm_sweep.shrink import shrunk_arguments, shrunk_schema

    if name not in PRESETS:
        why = f"{name}: timm has it, but no preset describes it; run tools/generate_presets.py"
        return ArchitectureResult(name, module, problems=(why,))
    cfg = PRESETS[name]
    real = peer.create_abstract(name)
    parameters, tensors = sum(p.numel() for p in real.parameters()), len(real.state_dict())
    problems = _compare_tensors(cfg, real)
    if problems:
        return ArchitectureResult(name, module, parameters, tensors, problems=tuple(problems))
    try:
        model = peer.create_float64(name, **({} if full_size else shrunk_arguments(cfg, module)))
        small = cfg if full_size else shrunk_schema(cfg, model)
        to_timm, levels, where = _compare_function(small, model, seed, full_size)
    except Exception as error:  # whatever goes wrong is this architecture's verdict, not the walk's end
        said = f"{type(error).__name__}: {first_line(error)}"
        return ArchitectureResult(name, module, parameters, tensors, problems=(said,))
    for twin, errors in to_timm.items():
        problems += [
            f"{twin} twin: {output} differ from timm's by {error:.1e}"
            for output, error in errors.items()
            if not error <= FLOAT64
        ]
    problems += [f"twins: {r.level} differ by {r.largest:.1e}" for r in levels if not r.passed]
    problems += [f"first in {where}"] if where else []
    return ArchitectureResult(
        name=name,
        module=module,
        parameters=parameters,
        tensors=tensors,
        to_timm=to_timm,
        twins={result.level: result.largest for result in levels},
        problems=tuple(problems),
    )


def _compare_tensors(cfg: ViTConfig, real: nn.Module) -> list[str]:
    """Compare names, shapes and count of timm's tensors with those of both twins."""
    import torch

    import vit_jax.leaves
    import vit_jax.weights
    import vit_torch.leaves
    import vit_torch.weights
    from parity.porting.dialects.records.timm import read_state

    state = read_state(real.state_dict(), join=torch.cat)  # on the meta device: nothing is allocated
    theirs = {name: tuple(tensor.shape) for name, tensor in state.items()}
    problems = []
    for twin, leaves in (
        ("PyTorch", vit_torch.leaves.leaves(vit_torch.weights.abstract_model(cfg))),
        ("JAX", vit_jax.leaves.leaves(vit_jax.weights.abstract_model(cfg))),
    ):
        ours = {leaf.name: leaf.shape for leaf in leaves}
        for name in sorted(ours.keys() | theirs.keys()):
            here, there = ours.get(name, "absent"), theirs.get(name, "absent")
            if here != there:
                problems.append(f"{name}: {here} in the {twin} twin, {there} in timm")
    return problems


def _compare_function(
    cfg: ViTConfig, model: nn.Module, seed: int, full_size: bool
) -> tuple[dict[str, dict[str, float]], list[LevelResult], str]:
    """Return each twin's errors against timm, the comparison of the twins, and where the twins part.

    At full size one image is fed, and inputs and outputs of modules are not recorded: they would
    fill the memory. So would the backward pass of the largest images, which is left out.
    """
    import torch

    from parity.porting.dialects.records.timm import read_state
    from parity.twins.run_torch import TorchTwin
    from vit_torch.weights import abstract_model

    model.load_state_dict(redraw_model(model, seed, branch_norms=branch_norms(cfg)), strict=True)
    state = read_state(model.state_dict(), join=torch.cat)
    abstract_model(cfg).load_state_dict(state, strict=True, assign=True)  # nothing missing, nothing over
    arrays = {name: tensor.numpy() for name, tensor in state.items()}
    batch = random_batch(cfg, 1 if full_size else 2, seed)
    theirs = _run(model, batch)

    def weights(name: str, kind: str, shape: tuple[int, ...]) -> np.ndarray:
        return arrays[name]

    modules, gradients = not full_size, _backward_bytes(cfg) <= MOST_BYTES
    runs = {
        "JAX": _jax_twin(cfg, modules, gradients).run(weights, batch, "float64"),
        "PyTorch": TorchTwin(cfg, modules=modules, gradients=gradients).run(weights, batch, "float64"),
    }
    levels, divergence = compare(
        Runs("float64", runs["JAX"], runs["PyTorch"], runs["JAX"], runs["PyTorch"])
    )
    to_timm = {
        twin: {name: relative_error(_output(run, name), theirs[name]) for name in OUTPUTS}
        for twin, run in runs.items()
    }
    if cfg.pos_embed_grid is not None and not full_size:
        from evidence.timm_sweep.patches import compare_patches

        for twin, errors in compare_patches(cfg, model, arrays, seed).items():
            to_timm[twin] |= errors
    return to_timm, levels, f"{divergence.where}: {divergence.detail}" if divergence else ""


@lru_cache(maxsize=2)  # architectures come sorted by likeness
def _jax_twin(cfg: ViTConfig, modules: bool, gradients: bool) -> JaxTwin:
    from parity.twins.run_jax import JaxTwin

    return JaxTwin(cfg, modules=modules, gradients=gradients)


def _backward_bytes(cfg: ViTConfig) -> int:
    """Estimate the bytes of one image's attention weights that a backward pass keeps, in float64."""
    tokens = cfg.num_prefix_tokens + cfg.num_patches
    return 3 * 8 * cfg.depth * cfg.num_heads * tokens**2


def redraw_model(model: nn.Module, seed: int, *, branch_norms: int = 0) -> dict[str, torch.Tensor]:
    """Draw a new value for every tensor of timm's model, by timm's names; see `redraw`."""
    import torch

    norms = {name for name, module in model.named_modules() if "norm" in type(module).__name__.lower()}

    def draw(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        path, _, leaf = name.rpartition(".")
        kind = "norm" if path in norms else "linear" if leaf == "weight" else "param"
        return torch.from_numpy(redraw(name, kind, shape, seed, branch_norms=branch_norms))

    return {name: draw(name, tuple(value.shape)) for name, value in model.state_dict().items()}


def _run(model: Any, batch: Batch) -> dict[str, np.ndarray]:
    import torch

    from evidence.timm_sweep.peer import float64

    images = torch.from_numpy(batch.images).permute(0, 3, 1, 2)
    with torch.no_grad(), float64():
        tokens = model.forward_features(images)
        if getattr(model, "global_pool", None) == "soft":  # its pooled tokens are its output
            pooled = logits = model(images)
        else:
            pooled = model.forward_head(tokens, pre_logits=True)
            logits = model.forward_head(tokens)
    return {"tokens": tokens.numpy(), "pooled": pooled.numpy(), "logits": logits.numpy()}


def _output(run: Recording, name: str) -> np.ndarray:
    if name != "tokens":
        return run.read(output_site(name))
    parts = [run.read(output_site(each)) for each in ("prefix_tokens", "patch_tokens")]
    return np.concatenate(parts, axis=1)  # (B, P + N, D)
