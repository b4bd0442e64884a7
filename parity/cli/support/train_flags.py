"""The flags of a training run, with the help of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from parity.cli.support.reading import DATA_DIR, Exif, shown_as
from vit_config import ConfigError, Recipe, ViTConfig
from vit_config.lora import Lora
from vit_train.folder.saving import USUAL
from vit_train.frameworks import Framework


@dataclass(frozen=True)
class BaseFlags:
    """The flags that give the defaults of the others."""

    preset: Annotated[str | None, shown_as("NAME", "digits")] = None
    """Preset that gives the defaults of --model; digits has a recipe, too."""
    config: Annotated[Path | None, shown_as("FILE", "none")] = None
    """JSON or TOML file {"preset": NAME, "data": SET, "model": {...}, "recipe": {...}}, all optional, or
    the run.json of a run; gives the defaults of the other flags."""
    init: Annotated[str | None, shown_as("FILE", "none: random parameters")] = None
    """Checkpoint of any dialect to start from: a file, a folder, hf-hub:ORG/NAME or timm:NAME.TAG. It
    gives the defaults of --model, unless --preset or --config do; for other classes the head is drawn
    anew."""
    init_part: Annotated[str | None, shown_as("NAME", "the only one")] = None
    """Model to take from that file if it holds several, such as state_dict_ema."""
    init_adapter: Annotated[str | None, shown_as("DIR", "none")] = None
    """Folder of a LoRA that PEFT trained on --init; the run goes on with it, and with its head, without
    --lora-rank."""


@dataclass(frozen=True)
class Options(BaseFlags):
    """Train a Vision Transformer in JAX or PyTorch, export it, load it in both, and compare the two.

    Without any flag: the preset `digits` on scikit-learn's handwritten digits, in JAX. A run that was
    interrupted is continued by the same command. Exit status: 0, also for a run that --stop-after
    ended; 1 if the twins differ, 2 for bad input, 130 if interrupted.
    """

    data: str = "digits"
    """Data set: digits; mnist5k, images of MNIST; tfds:NAME, a prepared tensorflow-datasets set;
    folder:PATH, images in train/CLASS and val/CLASS; table:FILE, images that a CSV or Parquet lists;
    tar:PATH, tar files as of webdataset; hf:PATH, Arrow or Parquet files of Hugging Face's datasets."""
    data_dir: Annotated[Path | None, DATA_DIR] = None
    """Folder of prepared data sets."""
    damaged: Literal["refuse", "replace"] = "refuse"
    """On an image that cannot be read: stop and name it; or train on the next one in its place, leave it
    out of scores, and name all at the end."""
    new_head: bool = False
    """Draw the head anew even where that of --init fits."""
    freeze: Annotated[tuple[str, ...], shown_as("PATH [PATH ...]", "nothing")] = ()
    """Parameters to leave untrained, by path: patch_embed, 'blocks.[0-5]'; '!head' for the others."""
    lora_rank: Annotated[int | None, shown_as("RANK", "none: weights themselves are trained")] = None
    """Train low-rank adapters of this rank (LoRA) and the head, and no other parameter; adapters are
    merged into the exported weights."""
    lora_alpha: float = Lora().alpha
    """Multiply adapters by alpha / rank."""
    lora_targets: Annotated[
        tuple[str, ...], shown_as("PATH [PATH ...]", "queries, keys, values, output")
    ] = Lora().targets
    """Linear layers that get adapters, by path: 'blocks.*.mlp', 'blocks.[0-5].attn.qkv'."""
    teacher: Annotated[str | None, shown_as("FILE", "none")] = None
    """Checkpoint of any dialect, as of --init, whose logits the distillation token learns; with
    --recipe.distill and --model.distill-token."""
    run_dir: Annotated[str | None, shown_as("DIR", "runs/ + the preset's or file's name + changes")] = (
        None
    )
    """Folder of this run's checkpoints, logs, weights and pictures; on object storage as s3://BUCKET/RUN,
    with extra 'remote' and fsspec's package for it."""
    framework: Framework = "jax"
    """Framework of the twin to train. PyTorch uses one device, and the reference attention kernel."""
    stop_after: Annotated[int | None, shown_as("STEPS", "the recipe's end")] = None
    """End after this many steps in all, with a checkpoint; 0 writes the initial state. The same command
    without it continues the run."""
    best: Literal["none", "loss", "accuracy"] = "none"
    """Keep the checkpoint with the best validation score, and test and export it instead of the last.
    Needs --recipe.validation-fraction."""
    patience: Annotated[int | None, shown_as("EVALUATIONS", "never")] = None
    """End after this many evaluations in a row without a better score; goes with --best."""
    workers: int = 0
    """Processes that read and augment training images, if threads do not keep the accelerator busy; 0
    for threads. The results do not depend on it."""
    save_every: Annotated[str, shown_as("TIME", USUAL)] = USUAL
    """Write a checkpoint this often, besides the recipe's each so many epochs: a time (90s, 10m, 2h), a
    number of steps (500steps), both with a comma between, or never."""
    keep: int = 3
    """Number of the newest checkpoints to keep."""
    check: bool = True
    """Score the exported weights in both twins after training, and compare these on test images."""
    profile: Annotated[str | None, shown_as("A:B", "none")] = None
    """Trace steps A to B, counted from 1, into RUN/profile, by the framework's own profiler."""
    dry_run: bool = False
    """Build everything, take two steps on random images, print parameters, FLOPs, memory, steps and time
    per step, and write nothing."""
    dry_run_batch: Annotated[int | None, shown_as("IMAGES", "as --recipe.batch-size")] = None
    """Images in a batch of --dry-run, for a machine that the recipe's batch does not fit on."""
    parallel: Literal["jit", "pmap"] = "jit"
    """Spread a step over JAX's devices by jax.jit over --mesh, or by jax.pmap."""
    mesh: Annotated[str, tyro.conf.arg(metavar="AXES")] = "data=-1"
    """Named axes to spread a step over, such as data=4,fsdp=2,tensor=1: data splits the batch, fsdp
    batch and state, tensor heads and hidden layers; -1 takes the devices that are left."""
    scan: Literal["auto", "on", "off"] = "auto"
    """Compile neighbouring blocks of the same structure once, as a loop of JAX; auto: from a depth of 24
    on, except on a CPU. Files and numbers are the same."""
    remat: Literal["none", "full", "dots_saveable", "dots_with_no_batch_dims_saveable"] = "none"
    """Values of a block that JAX's backward pass computes again instead of keeping them, which saves
    memory for time: all but its input (full), or all but what that policy of jax.checkpoint_policies
    keeps."""
    compiled: Annotated[Path | None, shown_as("DIR", "as JAX_COMPILATION_CACHE_DIR says")] = None
    """Keep JAX's compiled programs in this folder, and take them from there the next time."""
    coordinator: Annotated[str | None, shown_as("HOST:PORT", "none: this process trains alone")] = None
    """Address of the first of several processes of JAX that train together, or auto where the cluster
    (TPU pod, SLURM, Open MPI, GKE) or JAX_COORDINATOR_ADDRESS says it."""
    process: Annotated[str | None, shown_as("I/N", "as the cluster says")] = None
    """Number of this process, from 0, and of all processes."""
    dtype: Annotated[
        Literal["float32", "bfloat16", "float64"] | None,
        shown_as("{float32,bfloat16,float64}", "as --recipe.dtype"),
    ] = None
    """Short for --recipe.dtype."""
    exif: Annotated[Exif | None, shown_as("{ignore,apply}", "as --recipe.exif")] = None
    """Short for --recipe.exif: turn photos as their camera noted."""
    model: ViTConfig = field(default_factory=ViTConfig)
    """The architecture, field by field."""
    recipe: Recipe = field(default_factory=Recipe)
    """The recipe of training, field by field."""


def lora_flags(lora: Lora | None) -> dict[str, Any]:
    """Return the defaults of the flags of adapters."""
    if lora is None:
        return {}
    return {"lora_rank": lora.rank, "lora_alpha": lora.alpha, "lora_targets": lora.targets}


def read_lora(options: Options) -> Lora | None:
    """Return the adapters that flags ask for, or those of --init-adapter; None for none.

    Raises:
        ConfigError: a flag of adapters is given without a rank, or contradicts --init-adapter.
    """
    if options.init and options.init_adapter:
        from parity.porting.models.start import start_lora

        lora = start_lora(options.init, options.model, options.init_adapter, part=options.init_part)
        flags = lora_flags(lora)
        if options.lora_rank is not None and flags != {n: getattr(options, n) for n in flags}:
            raise ConfigError(
                f"--lora-rank: {options.init_adapter} has a rank ({lora.rank}), an alpha ({lora.alpha})"
                " and layers of its own; leave --lora-rank, --lora-alpha and --lora-targets out"
            )
        return lora
    if options.lora_rank is not None:
        return Lora(rank=options.lora_rank, alpha=options.lora_alpha, targets=options.lora_targets)
    for flag in ("lora_alpha", "lora_targets"):
        if getattr(options, flag) != getattr(Options, flag):
            raise ConfigError(f"--{flag.replace('_', '-')} goes with --lora-rank; give a rank")
    return None


def read_recipe(options: Options, argv: Sequence[str]) -> Recipe:
    """Return the recipe, with the fields that have a short flag of their own.

    Raises:
        ConfigError: both flags of a field are given, with other values.
    """
    recipe = options.recipe
    for name in ("dtype", "exif"):
        value, known = getattr(options, name), getattr(recipe, name)
        if value is None:
            continue
        spelled_out = any(word.partition("=")[0] == f"--recipe.{name}" for word in argv)
        if spelled_out and value != known:
            raise ConfigError(
                f"--{name} {value} and --recipe.{name} {known} set the same field; give one of them"
            )
        recipe = recipe.replace(**{name: value})
    return recipe
