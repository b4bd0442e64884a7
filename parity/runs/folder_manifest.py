"""Reads a run folder's manifest, and converts it for a folder of another framework."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from parity.runs.run import Run
from vit_config import CheckpointError, Recipe, ViTConfig
from vit_config.adapters import draw_adapters, untrained_names
from vit_config.files.foreign import parse_json, read_text
from vit_config.job import flatten
from vit_config.lora import Lora
from vit_config.parameters import parameters
from vit_config.recipe import ONLY_JAX
from vit_train.folder.manifest import (
    COMPUTING,
    ENVIRONMENT,
    FILE,
    FORMAT,
    RUN_FORMAT,
    Manifest,
)
from vit_train.folder.start import frozen_names
from vit_train.frameworks import NAMES, Framework

_PARTS = ("model", "recipe")
_DRAWN = ("dropout_", "stochastic_depth")
"""Prefixes of the schema's fields that make a step draw random numbers."""


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a run's folder.

    Raises:
        CheckpointError: the manifest is damaged.
    """
    path = folder / FILE
    try:
        there = parse_json(read_text(path))
        data = there["data"]
        texts = [data["name"], data["fingerprint"]]
        whole = all(isinstance(there[part], dict) for part in _PARTS)
        if FORMAT not in there:
            raise KeyError(FORMAT)
        if not whole or not all(isinstance(text, str) for text in texts):
            raise ValueError("not the description of a run")
        if not isinstance(there.setdefault(ENVIRONMENT, {}), dict):
            raise ValueError(f"{ENVIRONMENT} is not a list of versions")
    except (ValueError, TypeError, KeyError) as error:
        why = f"has no {error}" if isinstance(error, KeyError) else error
        raise CheckpointError(
            f"{path}: is damaged ({why}); take it from another folder of the same run"
        ) from None
    return Manifest(there)


class DescribedJob(NamedTuple):
    """The job of a run, as its folder describes it."""

    config: ViTConfig
    recipe: Recipe
    lora: Lora | None
    frozen: frozenset[str]
    """Names of parameters that are not trained."""


def read_job(folder: Path, manifest: Manifest) -> DescribedJob:
    """Read the model, the recipe, the adapters and the frozen parameters from a manifest.

    Raises:
        ConfigError: this version does not know a field or a value.
    """
    where = f"{folder / FILE}, "
    cfg = ViTConfig.from_json(json.dumps(manifest["model"]), where=f"{where}model")
    recipe = Recipe.from_json(json.dumps(manifest["recipe"]), where=f"{where}recipe")
    stated = manifest.get("lora")
    lora = None if stated is None else Lora.from_json(json.dumps(stated), where=f"{where}lora")
    names = (*parameters(cfg), *draw_adapters(lora, cfg, 0))
    frozen = frozen_names(names, manifest.get("freeze", ())) | untrained_names(lora, cfg)
    return DescribedJob(cfg, recipe, lora, frozen)


def move(
    run: Run,
    manifest: Manifest,
    framework: Framework,
    source: Framework | None,
) -> tuple[Run, Manifest, list[str]]:
    """Convert a run and its manifest for a framework's folder, with notes on everything that changes.

    Args:
        source: the framework of the run so far; None for another library.
    """
    recipe, notes = run.recipe, []
    for field, usual in ONLY_JAX.items() if framework == "torch" else ():
        if (there := getattr(recipe, field)) != usual:
            here = json.dumps(usual)
            notes.append(f"{field} = {json.dumps(there)} is one of JAX; the run goes on with {here}")
            recipe = recipe.replace(**{field: usual})
    schemas = {"model": json.loads(run.config.to_json()), "recipe": json.loads(recipe.to_json())}
    before = flatten({part: manifest[part] for part in schemas})
    added = [name for name in flatten(schemas) if name not in before]
    if added:
        notes.append(
            f"{FILE} is older than {', '.join(added)}: written with the defaults, which are what was"
            " done before there was a choice"
        )
    number = manifest[FORMAT]
    if number != RUN_FORMAT:
        notes.append(
            f"the run has format {number}, this program writes format {RUN_FORMAT}: only the trainer of"
            f" format {number} goes on with it"
        )
    drawn = [name for name in run.config.fields() if name.startswith(_DRAWN)]
    if source != framework and any(getattr(run.config, name) for name in drawn):
        notes.append(
            f"{NAMES[framework]} draws dropout masks of its own: equal in distribution to those before,"
            " not number by number"
        )
    began: dict[str, str] = dict(manifest[ENVIRONMENT])
    for name in COMPUTING[framework]:
        began.setdefault(name, version(name))
    moved = Manifest({**manifest, **schemas, ENVIRONMENT: began})
    return replace(run, recipe=recipe), moved, notes
