"""Records that timm's training script, and others, keep beside the tensors: ``arch`` and options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.porting.dialects.dialect import FALLBACK_FIELDS, TrainedFields
from parity.porting.dialects.records.timm.arguments import fields_of_arguments
from vit_config import PRESETS
from vit_config.presets import from_timm

HYPER = ("arch", "model_name", "model")
NAMES = ("arch", "args.model", *(f"hyper_parameters.{name}" for name in HYPER))
"""Keys under which training scripts keep the name of the architecture."""
CALLED = {
    "vit_base_patch16": "vit_base_patch16_224",
    "vit_large_patch16": "vit_large_patch16_224",
    "vit_huge_patch14": "vit_huge_patch14_224",
    "RETFound_mae": "vit_large_patch16_224",
}
"""timm's architectures by their names in scripts that fine-tune MAE (MAE's own and RETFound's)."""
OPTIONS = {"num_classes": "num_classes", "in_chans": "in_chans", "gp": "global_pool"}
"""Options of timm's training script that are arguments of the model."""
STATED = {"num_classes": "num_classes", "img_size": "image_size"}
"""Fields that are sure, not a fallback, if the records give these arguments."""


def read_training_script(objects: Mapping[str, Any]) -> TrainedFields:
    """Read the schema's fields from a training script's records: ``arch``, and options under ``args``.

    Raises:
        ConfigError: no schema can express an option of the model.
    """
    texts = [objects[key] for key in NAMES if isinstance(objects.get(key), str)]
    names = [CALLED.get(name) or name for name in texts]
    architectures = [name for name in names if name.partition(".")[0] in from_timm.architectures()]
    if not architectures:
        return TrainedFields({}, {})
    name = architectures[0].partition(".")[0]
    options = _under(objects, "args.")
    given = _under(objects, "args.model_kwargs.")
    given |= {argument: options[option] for option, argument in OPTIONS.items() if option in options}
    if objects.get("args.model") in CALLED:
        if "nb_classes" in options:
            given["num_classes"] = options["nb_classes"]
        if isinstance(options.get("global_pool"), bool):
            given["global_pool"] = "avg" if options["global_pool"] else "token"
    size = options.get("img_size") or options.get("input_size")
    if size is not None:
        given["img_size"] = size[-2:] if isinstance(size, list) else size
    module = from_timm.architectures()[name]["module"]
    fields = fields_of_arguments(given, module, PRESETS[name])
    sure = {field for argument, field in STATED.items() if given.get(argument) is not None}
    weak = [field for field in FALLBACK_FIELDS if field in fields and field not in sure]
    return TrainedFields(fields, {field: fields.pop(field) for field in weak})


def _under(objects: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the entries under a prefix of flat names, with lists put together again."""
    entries: dict[str, Any] = {}
    for name, value in objects.items():
        key, _, index = name.removeprefix(prefix).partition(".")
        if name.startswith(prefix) and value is not None and index.isdigit():
            entries.setdefault(key, []).append(value)
        elif name.startswith(prefix) and value is not None and not index:
            entries[key] = value
    return entries
