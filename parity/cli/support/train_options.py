"""The command line of training: a flag for every field of schema and recipe, with typed values."""

from __future__ import annotations

import json
import os
import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import tyro
from pydantic import BaseModel, Field
from tyro import constructors

from parity.cli.support.command_line import parse as read
from parity.porting.loaded import Framework
from vit_config import ConfigError, Recipe, Schema, ViTConfig
from vit_config.base import NameTuple
from vit_config.job import Job, default_job

if TYPE_CHECKING:
    from vit_train.records import OnDamage
    from vit_train.start import Start

T = TypeVar("T")
S = TypeVar("S", bound=Schema)


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
    images in train/CLASS and val/CLASS."""
    data_dir: Annotated[Path | None, _arg("DIR", "$TFDS_DATA_DIR or ~/tensorflow_datasets")] = None
    """Folder of prepared data sets."""
    damaged: Literal["refuse", "replace"] = "refuse"
    """What to do with an image that cannot be read: end the run and name it; or train on the next one in
    its place, leave it out of scores, and name all at the end."""
    new_head: bool = False
    """Draw the head anew even where that of --init fits."""
    freeze: Annotated[tuple[str, ...], _arg("PATH [PATH ...]", "nothing")] = ()
    """Parameters that are not trained, by path: patch_embed, 'blocks.[0-5]'; '!head' for the others."""
    run_dir: Annotated[Path | None, _arg("DIR", "runs/ + the preset's or file's name + changes")] = None
    """Folder of this run's checkpoints, logs, weights and pictures."""
    framework: Framework = "jax"
    """Which twin is trained. PyTorch trains on one device, with the reference attention kernel."""
    stop_after: Annotated[int | None, _arg("STEPS", "the recipe's end")] = None
    """End after this many steps in all, with a checkpoint; 0 writes the initial state. The same command
    without it goes on."""
    dry_run: bool = False
    """Build everything, take two steps on drawn images, print parameters, FLOPs, memory, steps and time
    per step, and write nothing."""
    parallel: Literal["jit", "pmap"] = "jit"
    """How JAX spreads a step over the local devices: jax.jit with sharded arguments, or jax.pmap."""
    sharding: Literal["replicated", "full"] = "replicated"
    """Whether each device of JAX holds the whole training state, or (under jit) its share of it."""
    dtype: Annotated[
        Literal["float32", "bfloat16", "float64"] | None,
        _arg("{float32,bfloat16,float64}", "as --recipe.dtype"),
    ] = None
    """Short for --recipe.dtype."""
    model: ViTConfig = field(default_factory=ViTConfig)
    """The architecture, field by field."""
    recipe: Recipe = field(default_factory=Recipe)
    """How it is trained, field by field."""


class JobFile(Schema, frozen=True):
    """The contents of a --config file, or the run.json of a run."""

    preset: str = "digits"
    data: str | dict[str, Any] = "digits"
    """The name of a data set; a run also knows what is in it."""
    model: dict[str, Any] = Field(default_factory=dict)
    recipe: dict[str, Any] = Field(default_factory=dict)
    init: str | dict[str, Any] | None = None
    """A checkpoint to start from; a run also knows what is in it."""
    freeze: NameTuple = ()
    format: int | None = None
    """A run's; not looked at, as `versions` and `environment`."""
    versions: dict[str, Any] = Field(default_factory=dict)
    environment: dict[str, Any] = Field(default_factory=dict)

    @property
    def data_name(self) -> str:
        """The name of the data set."""
        return self.data if isinstance(self.data, str) else str(self.data.get("name"))

    @property
    def start(self) -> dict[str, Any]:
        """The fields of a job that say what its parameters begin as."""
        found = self.init if isinstance(self.init, dict) else {"name": self.init}
        new_head = bool(found.get("new_head"))
        return {"init": found.get("name"), "init_part": found.get("part"), "new_head": new_head}


class Request(typing.NamedTuple):
    """What the command line asks for."""

    job: Job
    data_dir: Path
    run_dir: Path
    parallel: Literal["jit", "pmap"]
    sharding: Literal["replicated", "full"]
    framework: Framework
    stop_after: int | None
    """How many steps in all are enough; None for the recipe's."""
    damaged: OnDamage
    """What to do with an image that cannot be read."""
    dry_run: bool
    """Whether only to see what the run will be."""

    @property
    def options(self) -> dict[str, Any]:
        """How the task differs from that of its job alone; reads the weights to start from."""
        start, stop = self.read_start(), self.stop_after
        return {"start": start, "stop_after": stop, "on_damage": self.damaged}

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

    @property
    def spread(self) -> dict[str, Any]:
        """How JAX spreads a step over its devices; PyTorch uses one."""
        return {"parallel": self.parallel, "sharding": self.sharding} if self.framework == "jax" else {}


registry = constructors.ConstructorRegistry()
"""How tyro reads sizes and schemas; filled at the end of this file."""


def parse(argv: Sequence[str], *, prog: str) -> Request:
    """Understand a command line.

    Raises:
        ConfigError: an unknown flag, or values that are not valid.
        MissingFileError: --config names no file.
        SystemExit: after printing help.
    """
    rest = [word for word in argv if word not in ("-h", "--help")]
    source, _ = read(Source, rest, prog=prog, return_unknown_args=True, registry=registry)
    base = base_job(source.preset, source.config, source.init, source.init_part)
    defaults = Options(
        preset=source.preset,
        config=source.config,
        init=base.init,
        init_part=base.init_part,
        new_head=base.new_head,
        freeze=base.freeze,
        data=base.data,
        model=base.model,
        recipe=base.recipe,
    )
    options = read(Options, argv, prog=prog, default=defaults, registry=registry)
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
    job = Job(options.model, recipe, options.data, **start, freeze=options.freeze)
    name = _name(source)
    name += "" if options.framework == "jax" else f"-{options.framework}"
    data_dir = options.data_dir or Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")
    return Request(
        job,
        data_dir.expanduser().absolute(),
        (options.run_dir or Path("runs") / run_name(name, base, job)).expanduser().absolute(),
        options.parallel,
        options.sharding,
        options.framework,
        options.stop_after,
        options.damaged,
        options.dry_run,
    )


def _name(source: Source) -> str:
    """What a run folder is called first: after the file, the preset, or the start point."""
    if source.config:
        return source.config.stem
    if source.preset or not source.init:
        return source.preset or "digits"
    return Path(source.init.rpartition(":")[2]).name


def _check_framework(options: Options, recipe: Recipe) -> None:
    if options.stop_after is not None and options.stop_after < 0:
        raise ConfigError(f"--stop-after {options.stop_after}: give a number of steps, 0 or more")
    if options.framework == "jax":
        return
    for flag in ("parallel", "sharding"):
        value, usual = getattr(options, flag), getattr(Options, flag)
        if value != usual:
            raise ConfigError(
                f"--{flag} {value} goes with --framework jax, not --framework {options.framework}; leave"
                " it out"
            )
    if recipe.kernel != "reference":
        raise ConfigError(
            f'--framework {options.framework} with kernel = "{recipe.kernel}", which only JAX has; add'
            " --recipe.kernel reference"
        )


def run_name(name: str, base: Job, job: Job) -> str:
    """`name`, and each field in which `job` differs from `base`; a digest where that is too long."""
    before = base.flat()
    changed = {field: value for field, value in job.flat().items() if value != before.get(field)}
    parts = [f"{field.rpartition('.')[2]}={_plain(value)}" for field, value in changed.items()]
    full = "-".join([name, *parts])
    if len(full) > 80:
        full = f"{name}-{sha256(json.dumps(changed).encode()).hexdigest()[:12]}"
    return re.sub(r"[^\w.=+-]", "_", full)


def _plain(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def base_job(
    preset: str | None, config: Path | None, init: str | None = None, part: str | None = None
) -> Job:
    """The job that a file describes, or a preset's own, or the model of a checkpoint.

    Raises:
        ConfigError, MissingFileError: no such preset or file, or fields that are not valid.
    """
    if config is None:
        if preset or not init:
            return replace(default_job(preset or "digits"), init=init, init_part=part)
        from parity.porting.start import start_config

        return Job(start_config(init, part=part), Recipe(), init=init, init_part=part)
    file = JobFile.load(config)
    try:
        base = default_job(preset or file.preset)
        start = {"init": init, "init_part": part} if init else file.start
        return Job(
            _override(base.model, file.model),
            _override(base.recipe, file.recipe),
            file.data_name,
            **start,
            freeze=file.freeze,
        )
    except ConfigError as error:
        raise ConfigError(f"{config}: {error}") from None


def _override(schema: S, changes: dict[str, Any]) -> S:
    """Replace fields of a schema; fields of a schema inside it one by one."""
    nested = {
        name: _override(getattr(schema, name), value)
        for name, value in changes.items()
        if isinstance(value, dict) and isinstance(getattr(schema, name, None), Schema)
    }
    return schema.replace(**{**changes, **nested})


@registry.primitive_rule
def _size(info: constructors.PrimitiveTypeInfo) -> constructors.PrimitiveConstructorSpec | None:
    """A size is one integer, or two."""
    sides_given = typing.get_args(info.type)
    if typing.get_origin(info.type) is not tuple or len(sides_given) != 2 or ... in sides_given:
        return None
    if float in (sides_given[0], *typing.get_args(sides_given[0])):
        return None  # a range, as tyro reads it

    def sides(words: list[str]) -> tuple[int, int]:
        if len(words) not in (1, 2) or not all(word.isdecimal() for word in words):
            raise ValueError(f"takes one or two whole numbers, not {' '.join(words) or 'none'}")
        return int(words[0]), int(words[-1])

    return constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="H [W]",
        instance_from_str=sides,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [str(side) for side in value],
    )


@registry.primitive_rule
def _optional_schema(
    info: constructors.PrimitiveTypeInfo,
) -> constructors.PrimitiveConstructorSpec | None:
    """A schema that may be absent is one word of JSON."""
    kinds = [kind for kind in typing.get_args(info.type) if kind is not type(None)]
    if len(kinds) != 1 or not (isinstance(kinds[0], type) and issubclass(kinds[0], Schema)):
        return None

    def read_json(words: list[str]) -> Schema | None:
        return None if words == ["null"] else kinds[0].from_json(words[0])

    return constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="{null,JSON}",
        instance_from_str=read_json,
        is_instance=lambda value: value is None or isinstance(value, kinds[0]),
        str_from_instance=lambda value: ["null" if value is None else value.to_json()],
    )


@registry.struct_rule
def _schema(info: constructors.StructTypeInfo) -> constructors.StructConstructorSpec | None:
    """A schema's fields, their docstrings as running text."""
    if not (isinstance(info.type, type) and issubclass(info.type, BaseModel)):
        return None
    hints = typing.get_type_hints(info.type, include_extras=True)
    return constructors.StructConstructorSpec(
        instantiate=info.type,
        fields=tuple(
            constructors.StructFieldSpec(
                name=name,
                type=hints[name],
                default=getattr(info.default, name),
                helptext=" ".join((field.description or "").split()),
            )
            for name, field in info.type.model_fields.items()
        ),
    )
