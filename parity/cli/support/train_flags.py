"""The flags of a training run, with what the help says of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from vit_config import ConfigError, Recipe, ViTConfig
from vit_config.lora import Lora
from vit_train.frameworks import Framework
from vit_train.saving import USUAL


def _arg(metavar: str, default: str) -> Any:
    """How the help shows a flag whose default is computed."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


@dataclass(frozen=True)
class Source:
    """Where the defaults of the other flags come from."""

    preset: Annotated[str | None, _arg("NAME", "digits")] = None
    """Named architecture that gives the defaults of --model; digits has a recipe, too."""
    config: Annotated[Path | None, _arg("FILE", "none")] = None
    """JSON or TOML file {"preset": NAME, "data": SET, "model": {...}, "recipe": {...}}, all optional, or
    the run.json of a run; gives the defaults of the other flags."""
    init: Annotated[str | None, _arg("FILE", "none: random parameters")] = None
    """Checkpoint of any dialect to start from: a file, a folder, hf-hub:ORG/NAME or timm:NAME.TAG. It
    gives the defaults of --model, unless --preset or --config do; for other classes the head is drawn
    anew."""
    init_part: Annotated[str | None, _arg("NAME", "the only one")] = None
    """Which model of that file to take where it has several, such as state_dict_ema."""


@dataclass(frozen=True)
class Options(Source):
    """Train a Vision Transformer in JAX or PyTorch, export it, load it in both, and compare the two.

    Without any flag: the preset `digits` on scikit-learn's handwritten digits, in JAX. A run that was
    interrupted is continued by the same command. Exit status: 0, also for a run that --stop-after
    ended; 1 if the twins differ, 2 for bad input, 130 if interrupted.
    """

    data: str = "digits"
    """Data set: digits; tfds:NAME, a prepared tensorflow-datasets set of images and labels; folder:PATH,
    images in train/CLASS and val/CLASS; tar:PATH, tar files as of webdataset; hf:PATH, Arrow or Parquet
    files of Hugging Face's datasets."""
    data_dir: Annotated[Path | None, _arg("DIR", "$TFDS_DATA_DIR or ~/tensorflow_datasets")] = None
    """Folder of prepared data sets."""
    damaged: Literal["refuse", "replace"] = "refuse"
    """An image that cannot be read: stop and name it; or train on the next one in
    its place, leave it out of scores, and name all at the end."""
    new_head: bool = False
    """Draw the head anew even where that of --init fits."""
    freeze: Annotated[tuple[str, ...], _arg("PATH [PATH ...]", "nothing")] = ()
    """Parameters that are not trained, by path: patch_embed, 'blocks.[0-5]'; '!head' for the others."""
    lora_rank: Annotated[int | None, _arg("RANK", "none: weights themselves are trained")] = None
    """Train low-rank adapters of this rank (LoRA) and the head, and leave all else as it is; they are
    merged into the exported weights."""
    lora_alpha: float = Lora().alpha
    """Adapters are multiplied by alpha / rank."""
    lora_targets: Annotated[
        tuple[str, ...], _arg("PATH [PATH ...]", "queries, keys, values, output")
    ] = Lora().targets
    """Linear layers that have adapters, by path: 'blocks.*.mlp', 'blocks.[0-5].attn.qkv'."""
    teacher: Annotated[str | None, _arg("FILE", "none")] = None
    """Checkpoint of any dialect, as of --init, whose logits the distillation token learns; with
    --recipe.distill and --model.distill-token."""
    run_dir: Annotated[str | None, _arg("DIR", "runs/ + the preset's or file's name + changes")] = None
    """Folder of this run's checkpoints, logs, weights and pictures; on object storage as s3://BUCKET/RUN,
    with extra 'remote' and fsspec's package for it."""
    framework: Framework = "jax"
    """Which twin is trained. PyTorch trains on one device, with the reference attention kernel."""
    stop_after: Annotated[int | None, _arg("STEPS", "the recipe's end")] = None
    """End after this many steps in all, with a checkpoint; 0 writes the initial state. The same command
    without it goes on."""
    best: Literal["none", "loss", "accuracy"] = "none"
    """Keep the checkpoint with the best validation score, and end with it: it is tested and exported
    instead of the last. Needs --recipe.validation-fraction."""
    patience: Annotated[int | None, _arg("EVALUATIONS", "never")] = None
    """End after this many evaluations in a row without a better one; with --best."""
    workers: int = 0
    """Processes that read and augment training images, for where threads do not keep the accelerator
    busy; 0 for threads. What is computed does not depend on it."""
    save_every: Annotated[str, _arg("TIME", USUAL)] = USUAL
    """Write a checkpoint when so much work would be lost, besides the recipe's each so many epochs: a
    time (90s, 10m, 2h), a number of steps (500steps), both with a comma between, or never."""
    keep: int = 3
    """How many of the newest checkpoints are kept."""
    profile: Annotated[str | None, _arg("A:B", "none")] = None
    """Trace steps A to B, counted from 1, into RUN/profile, by the framework's own profiler."""
    dry_run: bool = False
    """Build everything, take two steps on random images, print parameters, FLOPs, memory, steps and time
    per step, and write nothing."""
    dry_run_batch: Annotated[int | None, _arg("IMAGES", "as --recipe.batch-size")] = None
    """Images in the two steps of --dry-run, for a machine that the recipe's batch does not fit on."""
    parallel: Literal["jit", "pmap"] = "jit"
    """How JAX spreads a step over the local devices: jax.jit with sharded arguments, or jax.pmap."""
    sharding: Literal["replicated", "full"] = "replicated"
    """Whether each device of JAX holds the whole training state, or (under jit) its share of it."""
    mesh: Annotated[str | None, _arg("AXES", "none: one axis, as --sharding says")] = None
    """Named axes to spread a step over, such as data=4,fsdp=2,tensor=1: data splits the batch, fsdp
    batch and state, tensor heads and hidden layers; -1 takes the devices that are left."""
    scan: Literal["auto", "on", "off"] = "auto"
    """Whether JAX compiles neighbouring blocks of the same structure once, as a loop; auto: from a depth
    of 24 on, except on a CPU. Files and numbers are the same."""
    remat: Literal["none", "full", "dots_saveable", "dots_with_no_batch_dims_saveable"] = "none"
    """What of a block JAX's backward pass computes again instead of keeping it, which saves memory for
    time: all but its input (full), or all but what that policy of jax.checkpoint_policies keeps."""
    compiled: Annotated[Path | None, _arg("DIR", "as JAX_COMPILATION_CACHE_DIR says")] = None
    """Keep what JAX compiled in this folder, and take it from there the next time."""
    coordinator: Annotated[str | None, _arg("HOST:PORT", "none: this process trains alone")] = None
    """Several processes of JAX train together: the address of the first of them, or auto where the
    cluster (TPU pod, SLURM, Open MPI, GKE) or JAX_COORDINATOR_ADDRESS says it. Goes with --mesh."""
    process: Annotated[str | None, _arg("I/N", "as the cluster says")] = None
    """Which of them this one is, from 0, and how many there are."""
    dtype: Annotated[
        Literal["float32", "bfloat16", "float64"] | None,
        _arg("{float32,bfloat16,float64}", "as --recipe.dtype"),
    ] = None
    """Short for --recipe.dtype."""
    model: ViTConfig = field(default_factory=ViTConfig)
    """The architecture, field by field."""
    recipe: Recipe = field(default_factory=Recipe)
    """How it is trained, field by field."""


def lora_flags(lora: Lora | None) -> dict[str, Any]:
    """The defaults of the flags of adapters."""
    if lora is None:
        return {}
    return {"lora_rank": lora.rank, "lora_alpha": lora.alpha, "lora_targets": lora.targets}


def read_lora(options: Options) -> Lora | None:
    """The adapters that flags ask for.

    Raises:
        ConfigError: flags of adapters without a rank.
    """
    if options.lora_rank is not None:
        return Lora(rank=options.lora_rank, alpha=options.lora_alpha, targets=options.lora_targets)
    for flag in ("lora_alpha", "lora_targets"):
        if getattr(options, flag) != getattr(Options, flag):
            raise ConfigError(f"--{flag.replace('_', '-')} goes with --lora-rank; give a rank")
    return None
