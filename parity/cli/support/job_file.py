"""The job that a run starts from: a preset's, a file's, or the model of a checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

from parity.cli.support.base_recipe import giving_way
from vit_config import ConfigError, Recipe, Schema
from vit_config.base import NameTuple
from vit_config.job import RECIPES, Job, default_job, flatten
from vit_config.lora import Lora

S = TypeVar("S", bound=Schema)


class JobFile(Schema, frozen=True):
    """The contents of a --config file, or the run.json of a run."""

    preset: str = "digits"
    data: str | dict[str, Any] = "digits"
    """Name of a data set; a run's file also describes its contents."""
    model: dict[str, Any] = Field(default_factory=dict)
    recipe: dict[str, Any] = Field(default_factory=dict)
    init: str | dict[str, Any] | None = None
    """Checkpoint to start from; a run's file also describes its contents."""
    freeze: NameTuple = ()
    best: Literal["none", "loss", "accuracy"] = "none"
    patience: int | None = None
    lora: Lora | None = None
    teacher: str | dict[str, Any] | None = None
    """Checkpoint to learn from; a run's file also describes its contents."""
    format: int | None = None
    """Format of a run's file; ignored, like `environment`."""
    environment: dict[str, Any] = Field(default_factory=dict)

    @property
    def data_name(self) -> str:
        """The name of the data set."""
        return self.data if isinstance(self.data, str) else str(self.data.get("name"))

    @property
    def start(self) -> dict[str, Any]:
        """Fields of a job that state its initial parameters."""
        source = self.init if isinstance(self.init, dict) else {"name": self.init}
        new_head = bool(source.get("new_head"))
        start = {"init": source.get("name"), "init_part": source.get("part"), "new_head": new_head}
        return {**start, "init_adapter": source.get("adapter")}


def base_job(
    preset: str | None,
    config: Path | None,
    init: str | None = None,
    part: str | None = None,
    tuned: Recipe | None = None,
    say: Callable[[str], None] = lambda line: None,
    adapter: str | None = None,
) -> Job:
    """Return the job that a file describes, a preset's own, or one for the model of a checkpoint.

    Args:
        tuned: recipe for a checkpoint that is given none, see `tunes`.
        say: takes a line on what a file's recipe leaves open and was not the preset's.
        adapter: folder of a LoRA that was trained on the checkpoint.

    Raises:
        ConfigError, MissingFileError: no such preset or file, or fields that are not valid.
    """
    start: dict[str, Any] = {"init": init, "init_part": part, "init_adapter": adapter}
    if config is None:
        if preset or not init:
            job = replace(default_job(preset or "digits"), **start)
            return replace(job, recipe=tuned) if tuned else job
        from parity.porting.models.start import start_config

        model = start_config(init, part=part, adapter=adapter)
        return Job(model, tuned or Recipe(), **start)
    file = JobFile.load(config)
    try:
        base = default_job(preset or file.preset)
        start = start if init else file.start
        return Job(
            _override(base.model, file.model),
            _override(giving_way(base.recipe, flatten(file.recipe), say), file.recipe),
            file.data_name,
            **start,
            freeze=file.freeze,
            best=file.best,
            patience=file.patience,
            lora=file.lora,
            teacher=file.teacher.get("name") if isinstance(file.teacher, dict) else file.teacher,
        )
    except ConfigError as error:
        raise ConfigError(f"{config}: {error}") from None


def for_classes(base: Job, classes: int | None, say: Callable[[str], None]) -> Job:
    """Return a job whose model has the classes of a set, where the weights to start from have others."""
    if classes in (None, base.model.num_classes):
        return base
    had = base.model.num_classes
    say(
        f"model.num_classes = {classes}, the classes of the set, where the model to start from has {had}"
    )
    return replace(base, model=base.model.replace(num_classes=classes))


def tunes(preset: str | None, config: Path | None, init: str | None) -> bool:
    """Return whether a run starts from weights, and neither a file nor a preset gives it a recipe."""
    return bool(init) and config is None and preset not in RECIPES


def _override(schema: S, changes: dict[str, Any]) -> S:
    """Replace fields of a schema; those of an inner schema one by one."""
    nested = {
        name: _override(getattr(schema, name), value)
        for name, value in changes.items()
        if isinstance(value, dict) and isinstance(getattr(schema, name, None), Schema)
    }
    return schema.replace(**{**changes, **nested})


def first_name(preset: str | None, config: Path | None, init: str | None) -> str:
    """Return the beginning of the name: after the file, the preset, or the checkpoint to start from."""
    if config:
        return config.stem
    if preset or not init:
        return preset or "digits"
    return Path(init.rpartition(":")[2]).name


def run_name(name: str, base: Job, job: Job) -> str:
    """Join `name` and each field in which `job` differs from `base`; a digest if that is too long."""
    before = base.flat()
    changed = {field: value for field, value in job.flat().items() if value != before.get(field)}
    parts = [f"{field.rpartition('.')[2]}={_plain(value)}" for field, value in changed.items()]
    full = "-".join([name, *parts])
    if len(full) > 80:
        full = f"{name}-{sha256(json.dumps(changed).encode()).hexdigest()[:12]}"
    return re.sub(r"[^\w.=+-]", "_", full)


def _plain(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)
