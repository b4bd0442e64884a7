"""The command line of training: a flag for every field of schema and recipe, with typed values."""

from __future__ import annotations

import os
import typing
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from parity.cli.support.command_line import parse as read
from parity.cli.support.job_file import base_job
from parity.cli.support.run_names import first_name, run_name
from parity.porting.loaded import Framework
from vit_config import ConfigError, Recipe, ViTConfig
from vit_config.job import Job
from vit_config.lora import Lora

if TYPE_CHECKING:
    from vit_train.distilling import TeacherWeights
    from vit_train.records import OnDamage
    from vit_train.start import Start


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
    init: Annotated[str | None, _arg("FILE", "none: parameters are drawn")] = None
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
    """What to do with an image that cannot be read: end the run and name it; or train on the next one in
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
    run_dir: Annotated[Path | None, _arg("DIR", "runs/ + the preset's or file's name + changes")] = None
    """Folder of this run's checkpoints, logs, weights and pictures."""
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
    """Processes that read and change training images, for where threads do not keep the accelerator
    busy; 0 for threads. What is computed does not depend on it."""
    keep: int = 3
    """How many of the newest checkpoints are kept."""
    profile: Annotated[str | None, _arg("A:B", "none")] = None
    """Trace steps A to B, counted from 1, into RUN/profile, by the framework's own profiler."""
    dry_run: bool = False
    """Build everything, take two steps on drawn images, print parameters, FLOPs, memory, steps and time
    per step, and write nothing."""
    parallel: Literal["jit", "pmap"] = "jit"
    """How JAX spreads a step over the local devices: jax.jit with sharded arguments, or jax.pmap."""
    sharding: Literal["replicated", "full"] = "replicated"
    """Whether each device of JAX holds the whole training state, or (under jit) its share of it."""
    mesh: Annotated[str | None, _arg("AXES", "none: one axis, as --sharding says")] = None
    """Named axes to spread a step over, such as data=4,fsdp=2,tensor=1: data splits the batch, fsdp
    batch and state, tensor heads and hidden layers; -1 takes the devices that are left."""
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


class Request(typing.NamedTuple):
    """What the command line asks for."""

    job: Job
    data_dir: Path
    run_dir: Path
    parallel: Literal["jit", "pmap"]
    sharding: Literal["replicated", "full"]
    mesh: str | None
    coordinator: str | None
    process: str | None
    framework: Framework
    stop_after: int | None
    """How many steps in all are enough; None for the recipe's."""
    damaged: OnDamage
    """What to do with an image that cannot be read."""
    workers: int
    """Processes that read and change training images."""
    keep: int
    """How many of the newest checkpoints are kept."""
    profile: str | None
    """Which steps are traced, as ``A:B``."""
    dry_run: bool
    """Whether only to see what the run will be."""

    @property
    def options(self) -> dict[str, Any]:
        """How the task differs from that of its job alone; reads the weights to start from."""
        from vit_train.profiling import read_steps

        return {
            "start": self.read_start(),
            "stop_after": self.stop_after,
            "on_damage": self.damaged,
            "workers": self.workers,
            "keep": self.keep,
            "teacher": self.read_teacher(),
            "profile": read_steps(self.profile) if self.profile else None,
        }

    def read_start(self) -> Start | None:
        """The weights to start from; None where parameters are drawn.

        Raises:
            WeightsError: they do not fit the model.
        """
        job = self.job
        if job.init is None:
            return None
        from parity.porting.start import read_start

        return read_start(job.init, job.model, part=job.init_part, new_head=job.new_head)

    def read_teacher(self) -> TeacherWeights | None:
        """The model to learn from; None where there is none."""
        if self.job.teacher is None:
            return None
        from parity.porting.start import read_teacher

        return read_teacher(self.job.teacher)

    @property
    def spread(self) -> dict[str, Any]:
        """How JAX spreads a step over its devices; PyTorch uses one."""
        if self.framework != "jax":
            return {}
        return {"parallel": self.parallel, "sharding": self.sharding, "mesh": self.mesh}

    def together(self) -> AbstractContextManager[bool]:
        """Join the other processes of the run, if any; gives whether this one speaks for all."""
        if self.framework != "jax":
            return nullcontext(True)
        from vit_jax.train.hosts import joined

        return joined(self.coordinator, self.process)


def parse(argv: Sequence[str], *, prog: str) -> Request:
    """Understand a command line.

    Raises:
        ConfigError: an unknown flag, or values that are not valid.
        MissingFileError: --config names no file.
        SystemExit: after printing help.
    """
    rest = [word for word in argv if word not in ("-h", "--help")]
    source, _ = read(Source, rest, prog=prog, return_unknown_args=True)
    base = base_job(source.preset, source.config, source.init, source.init_part)
    defaults = Options(
        preset=source.preset,
        config=source.config,
        init=base.init,
        init_part=base.init_part,
        new_head=base.new_head,
        freeze=base.freeze,
        **_lora_flags(base.lora),
        best=base.best,
        patience=base.patience,
        teacher=base.teacher,
        data=base.data,
        model=base.model,
        recipe=base.recipe,
    )
    options = read(Options, argv, prog=prog, default=defaults)
    recipe = options.recipe
    if options.dtype is not None:
        spelled_out = any(word.partition("=")[0] == "--recipe.dtype" for word in argv)
        if spelled_out and options.dtype != recipe.dtype:
            raise ConfigError(
                f"--dtype {options.dtype} and --recipe.dtype {recipe.dtype} set the same field;"
                " give one of them"
            )
        recipe = recipe.replace(dtype=options.dtype)
    _check_framework(options, recipe)
    start = {"init": options.init, "init_part": options.init_part, "new_head": options.new_head}
    if options.init is None and (options.init_part or options.new_head):
        raise ConfigError("--init-part and --new-head go with --init, which names what to start from")
    job = Job(
        options.model,
        recipe,
        options.data,
        **start,
        freeze=options.freeze,
        lora=_lora(options),
        best=options.best,
        patience=options.patience,
        teacher=options.teacher,
    )
    name = first_name(source.preset, source.config, source.init)
    name += "" if options.framework == "jax" else f"-{options.framework}"
    data_dir = options.data_dir or Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")
    return Request(
        job,
        data_dir.expanduser().absolute(),
        (options.run_dir or Path("runs") / run_name(name, base, job)).expanduser().absolute(),
        options.parallel,
        options.sharding,
        options.mesh,
        options.coordinator,
        options.process,
        options.framework,
        options.stop_after,
        options.damaged,
        options.workers,
        options.keep,
        options.profile,
        options.dry_run,
    )


def _lora_flags(lora: Lora | None) -> dict[str, Any]:
    """The defaults of the flags of adapters."""
    if lora is None:
        return {}
    return {"lora_rank": lora.rank, "lora_alpha": lora.alpha, "lora_targets": lora.targets}


def _lora(options: Options) -> Lora | None:
    if options.lora_rank is not None:
        return Lora(rank=options.lora_rank, alpha=options.lora_alpha, targets=options.lora_targets)
    for flag in ("lora_alpha", "lora_targets"):
        if getattr(options, flag) != getattr(Options, flag):
            raise ConfigError(f"--{flag.replace('_', '-')} goes with --lora-rank; give a rank")
    return None


def _check_framework(options: Options, recipe: Recipe) -> None:
    if options.stop_after is not None and options.stop_after < 0:
        raise ConfigError(f"--stop-after {options.stop_after}: give a number of steps, 0 or more")
    changed = {
        flag: getattr(options, flag)
        for flag in ("parallel", "sharding", "mesh", "coordinator", "process")
        if getattr(options, flag) != getattr(Options, flag)
    }
    other = next(iter(changed), None)
    if options.mesh is not None and other in ("parallel", "sharding"):
        raise ConfigError(
            f"--mesh {options.mesh} and --{other} {changed[other]}: a mesh says all of how a step is"
            f" spread; leave --{other} out"
        )
    if options.framework == "jax":
        return
    for flag, value in changed.items():
        raise ConfigError(
            f"--{flag} {value} goes with --framework jax, not --framework {options.framework}; leave it"
            " out"
        )
    if recipe.kernel != "reference":
        raise ConfigError(
            f'--framework {options.framework} with kernel = "{recipe.kernel}", which only JAX has; add'
            " --recipe.kernel reference"
        )
