"""The command line of training: a flag for every field of schema and recipe, with typed values."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parity.cli.support import schema_flags
from parity.cli.support.advice import offer
from parity.cli.support.base_recipe import about_images, given_flags, giving_way
from parity.cli.support.command_line import flags_of
from parity.cli.support.command_line import parse as read
from parity.cli.support.job_file import base_job, first_name, for_classes, run_name, tunes
from parity.cli.support.kept import spare_start
from parity.cli.support.reading import data_folder
from parity.cli.support.train_flags import BaseFlags, Options, lora_flags, read_lora, read_recipe
from vit_config import ConfigError, Recipe
from vit_config.fine_tuning import fine_tuning, summary
from vit_config.job import Job
from vit_config.processes import check_mapped
from vit_config.recipe import ONLY_JAX
from vit_train.folder.saving import read_save_every

if TYPE_CHECKING:
    from vit_train.distilling import TeacherWeights
    from vit_train.folder.mirror import Mirror
    from vit_train.folder.start import Start


class Request(typing.NamedTuple):
    """A run as the command line asks for it."""

    job: Job
    flags: Options
    """The flags as given, of which `job` and the folders were made."""
    data_dir: Path
    run_dir: Path
    mirror: Mirror | None
    """Mirror of the run folder on object storage; the run works in `run_dir`."""
    notes: tuple[str, ...]
    """Sentences to print before the first step."""

    @property
    def home(self) -> str:
        """The run's folder as text, with its URL if it is on object storage."""
        return f"{self.mirror.url}, worked on in {self.run_dir}" if self.mirror else str(self.run_dir)

    @property
    def options(self) -> dict[str, Any]:
        """Options of `make_task` beyond the job; reads the weights to start from."""
        from vit_train.display.profiling import read_steps

        flags = self.flags
        return {
            "start": self.read_start(),
            "stop_after": flags.stop_after,
            "on_damage": flags.damaged,
            "workers": flags.workers,
            "keep": flags.keep,
            "save_every": read_save_every(flags.save_every),
            "notes": self.notes,
            "teacher": self.read_teacher(),
            "profile": read_steps(flags.profile) if flags.profile else None,
        }

    def read_start(self) -> Start | None:
        """Read the weights to start from; None for random ones.

        Raises:
            WeightsError: they do not fit the model.
        """
        job = self.job
        if job.init is None:
            return None
        from parity.porting.models.start import read_start

        return read_start(
            job.init, job.model, part=job.init_part, new_head=job.new_head, adapter=job.init_adapter
        )

    def read_teacher(self) -> TeacherWeights | None:
        """Read the model to learn from; None if there is none."""
        if self.job.teacher is None:
            return None
        from parity.porting.models.start import read_teacher

        return read_teacher(self.job.teacher)

    @property
    def spread(self) -> dict[str, Any]:
        """Options of spreading a step over JAX's devices; none for PyTorch, which uses one device."""
        if self.flags.framework != "jax":
            return {}
        names = ("parallel", "mesh", "scan", "remat")
        return {name: getattr(self.flags, name) for name in names}

    @contextmanager
    def together(self) -> Iterator[bool]:
        """Join the other processes of the run and keep its folder on object storage, if it has them;
        yield whether this process speaks for all."""
        flags, mirror = self.flags, None if self.flags.dry_run else self.mirror
        with ExitStack() as last:  # sends the last files after all else is closed
            if flags.framework != "jax":
                if mirror:
                    last.enter_context(mirror.synchronised())
                yield True
                return
            from vit_jax.compiling import compilation_cache
            from vit_jax.train.hosts import join_processes, see_same

            with (
                compilation_cache(flags.compiled),
                join_processes(flags.coordinator, flags.process) as leads,
            ):
                if mirror and leads:
                    last.enter_context(mirror.synchronised())
                if mirror:
                    see_same(mirror.folder)
                yield leads


def parse(argv: Sequence[str], *, prog: str) -> Request:
    """Parse a command line.

    Raises:
        ConfigError: an unknown flag, values that are not valid, or too little memory to map.
        MissingFileError: --config names no file.
        SystemExit: after printing help.
    """
    offer(flags_of(Options), argv)  # what is read first has few of them
    rest = [word for word in argv if word not in ("-h", "--help")]
    check_mapped()
    source, _ = read(
        BaseFlags, rest, prog=prog, registry=schema_flags.registry, return_unknown_args=True
    )
    given, notes = given_flags(rest), list[str]()
    images = about_images(rest) if tunes(source.preset, source.config, source.init) else None
    if images and images.count is not None:  # what is held out is not trained on
        share = given.get("validation_fraction") or 0
        held = round(images.count * share) if isinstance(share, int | float) and 0 <= share < 1 else 0
        images = images._replace(count=images.count - held)
    tuned = fine_tuning(images, given.get("batch_size")) if images else None
    start = (source.init, source.init_part)
    base = base_job(source.preset, source.config, *start, tuned, notes.append, source.init_adapter)
    usual = giving_way(base.recipe, given, notes.append)
    if images:
        base = for_classes(base, images.classes, notes.append)
    defaults = Options(
        preset=source.preset,
        config=source.config,
        init=base.init,
        init_part=base.init_part,
        new_head=base.new_head,
        init_adapter=base.init_adapter,
        freeze=base.freeze,
        **lora_flags(base.lora),
        best=base.best,
        patience=base.patience,
        teacher=base.teacher,
        data=base.data,
        model=base.model,
        recipe=usual,
    )
    options = read(Options, argv, prog=prog, registry=schema_flags.registry, default=defaults)
    recipe = read_recipe(options, argv)
    _check_framework(options, recipe)
    names = ("init", "init_part", "new_head", "init_adapter")
    start = {name: getattr(options, name) for name in names}
    if options.init is None and any(start.values()):
        raise ConfigError(
            "--init-part, --init-adapter and --new-head go with --init, which names what to start from"
        )
    job = Job(
        options.model,
        recipe,
        options.data,
        **start,
        freeze=options.freeze,
        lora=read_lora(options),
        best=options.best,
        patience=options.patience,
        teacher=options.teacher,
    )
    if images:
        notes += summary(recipe, images, given)
    name = first_name(source.preset, source.config, source.init)
    name += "" if options.framework == "jax" else f"-{options.framework}"
    mirror = _mirror(options)
    run_dir = mirror.folder if mirror else options.run_dir or Path("runs") / run_name(name, base, job)
    folder = Path(run_dir).expanduser().absolute()
    spare_start(folder, job)
    read_save_every(options.save_every)  # refuse it now
    return Request(job, options, data_folder(options.data_dir), folder, mirror, tuple(notes))


def _mirror(options: Options) -> Mirror | None:
    """Make the mirror of a run folder on object storage; None for a local folder.

    Raises:
        ConfigError: a package that it needs is not installed, or the folder's name is empty.
    """
    if options.run_dir == "":
        raise ConfigError("--run-dir '': give a folder, or leave it out for one under runs/")
    if options.run_dir is None or "://" not in options.run_dir:
        return None
    from vit_train.folder.mirror import make_mirror

    return make_mirror(options.run_dir)


def _check_framework(options: Options, recipe: Recipe) -> None:
    if options.stop_after is not None and options.stop_after < 0:
        raise ConfigError(f"--stop-after {options.stop_after}: give a number of steps, 0 or more")
    if options.dry_run_batch is not None and (options.dry_run_batch < 1 or not options.dry_run):
        raise ConfigError(
            f"--dry-run-batch {options.dry_run_batch}: goes with --dry-run, and is 1 image or more"
        )
    changed = {
        flag: getattr(options, flag)
        for flag in (
            "parallel",
            "mesh",
            "coordinator",
            "process",
            "scan",
            "remat",
            "compiled",
        )
        if getattr(options, flag) != getattr(Options, flag)
    }
    if {"parallel", "mesh"} <= changed.keys():
        raise ConfigError(
            f"--mesh {options.mesh} and --parallel {options.parallel}: jax.pmap has none; leave one out"
        )
    if options.framework == "jax":
        return
    for flag, value in changed.items():
        raise ConfigError(
            f"--{flag} {value} goes with --framework jax, not --framework {options.framework}; leave it"
            " out"
        )
    for field, usual in ONLY_JAX.items():
        if (there := getattr(recipe, field)) != usual:
            raise ConfigError(
                f"--framework {options.framework} with {field} = {json.dumps(there)}, which only JAX"
                f" has; add --recipe.{field.replace('_', '-')} {usual}"
            )
