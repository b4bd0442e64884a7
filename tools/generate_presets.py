"""Write vit_config/presets/timm.json: timm's Vision Transformers as schemas, and what weights expect.

python tools/generate_presets.py
"""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import tyro
from timm_schema import NotUnderstoodError, read_schema
from timm_understood import TRAINING_ONLY

from evidence.timm_sweep.peer import MODULES, import_timm
from vit_config import ConfigError, Preprocess, ViTConfig
from vit_config.costs import costs

ROOT = Path(__file__).parent.parent
timm = import_timm()
PATH = ROOT / "vit_config" / "presets" / "timm.json"

Entry = dict[str, Any]
"""JSON values of one architecture or one tag."""


@dataclass(frozen=True)
class Options:
    """Write the schemas of timm's Vision Transformers; refuse, by name, what is not supported."""

    out: Path = PATH
    """The file to write."""


@dataclass(frozen=True)
class Built:
    """A model of timm's and what it was made from."""

    model: torch.nn.Module
    arguments: frozenset[str]
    loading: dict[str, Any]
    """The options with which timm fits a checkpoint's positions to the model."""

    @property
    def schema(self) -> ViTConfig:
        """The schema read from the model.

        Raises:
            NotUnderstoodError: see `timm_schema.read_schema`.
        """
        return read_schema(self.model, self.arguments, self.loading)


def architectures(module: str) -> list[str]:
    """Names of the models of one of timm's modules, deprecated ones left out."""
    return timm.list_models(module=module, include_tags=False)


def build(name: str) -> Built:
    """Return the model that `timm.create_model` makes of a name or a name.tag, without values."""
    modules = [import_module(f"timm.models.{module}") for module in MODULES]
    builders = {module.build_model_with_cfg for module in modules}
    (builder,) = builders
    seen: list[dict[str, Any]] = []

    def watched(*args: Any, **kwargs: Any) -> torch.nn.Module:
        seen.append(kwargs)
        return builder(*args, **kwargs)

    patches = [mock.patch.object(module, "build_model_with_cfg", watched) for module in modules]
    for patch in patches:
        patch.start()
    try:
        with torch.device("meta"):
            model = timm.create_model(name)
    finally:
        for patch in patches:
            patch.stop()
    (kwargs,) = seen
    arguments = kwargs.keys() - inspect.signature(builder).parameters.keys()
    return Built(model, frozenset(arguments), _loading(kwargs["pretrained_filter_fn"]))


def _loading(checkpoint_filter: Any) -> dict[str, Any]:
    options = checkpoint_filter.keywords if isinstance(checkpoint_filter, partial) else {}
    return {name: value for name, value in options.items() if name != "adapt_layer_scale"}


def entry(module: str, name: str) -> Entry:
    """One architecture: its schema and its pretrained tags, the default one first.

    Raises:
        NotUnderstoodError: the schema has no word for something in it, or another number of parameters.
    """
    built = build(name)
    cfg = built.schema
    there, here = sum(each.numel() for each in built.model.parameters()), costs(cfg).parameters
    if there != here:
        raise NotUnderstoodError(f"{there} parameters in timm, {here} of the schema")
    default = timm.models.get_pretrained_cfg(name)
    if default is None or not default.tag:
        raise NotUnderstoodError("no pretrained tag")
    others = timm.models.get_arch_pretrained_cfgs(name).values()
    tags = {default.tag: _tag(cfg, default, cfg)}
    for each in others:
        if each.tag not in tags:
            tags[each.tag] = _tag(cfg, each, build(f"{name}.{each.tag}").schema)
    left_out = sorted(built.arguments & TRAINING_ONLY)
    return {
        "module": module,
        "schema": short(cfg),
        **({"left_out": left_out} if left_out else {}),
        "tags": tags,
    }


def _tag(cfg: ViTConfig, pretrained: Any, theirs: ViTConfig) -> Entry:
    """One tag: the fields that differ from the architecture's, how pixels are prepared, the weights.

    Args:
        cfg: the schema of the architecture.
        pretrained: timm's description of the tag.
        theirs: the schema of the model that timm makes of the tag.
    """
    channels, *size = pretrained.input_size
    classes = pretrained.num_classes
    ours = cfg.replace(num_classes=classes, image_size=tuple(size), in_channels=channels)
    if ours != theirs:
        fields = [field for field in cfg.fields() if getattr(ours, field) != getattr(theirs, field)]
        raise NotUnderstoodError(f"tag {pretrained.tag}: it says otherwise of {', '.join(fields)}")
    try:
        preprocess = Preprocess(
            mean=pretrained.mean,
            std=pretrained.std,
            interpolation=pretrained.interpolation,
            crop_fraction=pretrained.crop_pct,
            crop_mode=pretrained.crop_mode,
            license=pretrained.license,
        )
    except ConfigError as error:
        raise NotUnderstoodError(f"tag {pretrained.tag}: {error}") from None
    before, after = cfg.model_dump(mode="json"), theirs.model_dump(mode="json")
    changes = {field: value for field, value in after.items() if before[field] != value}
    parts = {"schema": _squares_as_integers(changes), "preprocess": short(preprocess)}
    weights = pretrained.hf_hub_id or ("url" if pretrained.has_weights else None)
    return {**{part: fields for part, fields in parts.items() if fields}, "weights": weights}


def short(schema: ViTConfig | Preprocess) -> Entry:
    """The fields that are not their default, as JSON values."""
    return _squares_as_integers(schema.model_dump(mode="json", exclude_defaults=True))


def _squares_as_integers(fields: Entry) -> Entry:
    def value(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return _squares_as_integers(value)
        square = name in ("image_size", "patch_size", "reference_grid") and len(set(value or ())) == 1
        return value[0] if square else value

    return {name: value(name, each) for name, each in fields.items()}


def generate() -> tuple[Entry, dict[str, str]]:
    """The data, and why each architecture that is not in it was refused."""
    entries, refused = {}, {}
    for module in MODULES:
        for name in architectures(module):
            try:
                entries[name] = entry(module, name)
            except NotUnderstoodError as error:
                refused[name] = str(error)
    return {"timm": timm.__version__, "architectures": entries}, refused


def as_text(data: Entry) -> str:
    """JSON with the tables of `vit_config.presets.from_timm`, an architecture or a tag per line."""
    every, schemas = data["architectures"].items(), dict[str, Entry]()
    for name, each in every:
        schemas.setdefault(each["module"], {})[name] = each["schema"]
    modules = [f"  {json.dumps(module)}: {{\n{_lines(of, 3)}\n  }}" for module, of in schemas.items()]
    left_out = {name: each["left_out"] for name, each in every if "left_out" in each}
    tags = {f"{name}.{tag}": entry for name, each in every for tag, entry in each["tags"].items()}
    tables = {"schemas": ",\n".join(modules), "left_out": _lines(left_out, 2), "tags": _lines(tags, 2)}
    parts = [f' "timm": {json.dumps(data["timm"])}']
    parts += [f" {json.dumps(name)}: {{\n{table}\n }}" for name, table in tables.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _lines(table: Entry, indent: int) -> str:
    return ",\n".join(
        f"{' ' * indent}{json.dumps(key)}: {json.dumps(value)}" for key, value in table.items()
    )


def main(options: Options) -> int:
    """Write the file; 1 where something was refused."""
    data, refused = generate()
    options.out.write_text(as_text(data), encoding="utf-8")
    tags = sum(len(each["tags"]) for each in data["architectures"].values())
    print(f"timm {data['timm']}: {len(data['architectures'])} architectures, {tags} tags")
    for name, each in data["architectures"].items():
        if "left_out" in each:
            print(f"{name}: without {', '.join(each['left_out'])}, which act in training alone")
    for name, why in refused.items():
        print(f"refused {name}: {why}", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Options)))
