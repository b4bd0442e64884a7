"""A training job: a model, a recipe and the name of a data set."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from vit_config.errors import ConfigError
from vit_config.lora import Lora
from vit_config.presets import preset
from vit_config.recipe import Recipe
from vit_config.schema import ViTConfig

RECIPES = {
    "digits": Recipe.from_json("""{
        "epochs": 200, "batch_size": 32, "learning_rate": 0.001, "weight_decay": 0.1,
        "warmup_epochs": 10, "label_smoothing": 0.1, "checkpoint_every_epochs": 50,
        "augment": {"shift": 0.1, "rotate": 10.0, "scale": 0.1}
    }"""),
}
"""Recipes of presets that have one of their own; docs/digits.md says how they were chosen."""


@dataclass(frozen=True)
class Job:
    """Everything that fixes the result of a run, except the contents of the data set."""

    model: ViTConfig
    recipe: Recipe
    data: str = "digits"
    """Data set, such as ``digits`` or ``tfds:NAME``, as `vit_train.batches.data` takes it."""
    init: str | None = None
    """Checkpoint of any dialect to start from: a path, or a name on the Hub."""
    init_part: str | None = None
    """Model to take from that file if it holds several, such as ``state_dict_ema``."""
    new_head: bool = False
    """Draw the head anew even where that of the checkpoint fits."""
    init_adapter: str | None = None
    """Folder of PEFT whose adapters, trained on that checkpoint, the run goes on with."""
    freeze: tuple[str, ...] = ()
    """Parameters to leave untrained, by path, see `vit_train.folder.start.frozen_names`."""
    lora: Lora | None = None
    """Adapters to train in place of the weights; None for none."""
    best: Literal["none", "loss", "accuracy"] = "none"
    """Validation score that chooses the state that a run ends with; none for the last state."""
    teacher: str | None = None
    """Checkpoint of any dialect whose logits the distillation token learns."""
    patience: int | None = None
    """Evaluations in a row without a better score after which a run ends; None for never."""

    def check(self) -> None:
        """Refuse a recipe whose labels are not those of the model.

        Raises:
            ConfigError: the message names both values.
        """
        weights, classes = self.recipe.class_weights, self.model.num_classes
        if weights != "balanced" and weights and len(weights) != classes:
            raise ConfigError(
                f"class_weights has {len(weights)} numbers, but the model has num_classes = {classes};"
                " give one for each"
            )
        if self.recipe.several and self.model.head_activation != "none":
            raise ConfigError(
                f'labels = "several" gives each class a sigmoid in the loss, but head_activation ='
                f' "{self.model.head_activation}"; set --model.head-activation none'
            )

    def flat(self) -> dict[str, Any]:
        """Return every field by its dotted name, such as ``recipe.augment.shift``, as JSON values."""
        parts = {"model": json.loads(self.model.to_json()), "recipe": json.loads(self.recipe.to_json())}
        start = {"init": self.init, "init_part": self.init_part, "new_head": self.new_head}
        start["init_adapter"] = self.init_adapter
        given = {name: value for name, value in start.items() if value}
        taught = {"teacher": self.teacher} if self.teacher else {}
        return flatten({"data": self.data, **given, **taught, **self.further, **parts})

    @property
    def further(self) -> dict[str, Any]:
        """Further fields that fix a run, as JSON values; only those not at their defaults, so that a run
        from before such a field is still the same run."""
        frozen = {"freeze": list(self.freeze)} if self.freeze else {}
        best = {"best": self.best} if self.best != "none" else {}
        patience = {"patience": self.patience} if self.patience is not None else {}
        lora = {} if self.lora is None else {"lora": json.loads(self.lora.to_json())}
        return {**frozen, **lora, **best, **patience}


def default_job(name: str) -> Job:
    """Return the job of a preset: its model and its recipe, on the digits.

    Raises:
        ConfigError: there is no such preset.
    """
    return Job(preset(name), RECIPES.get(name, Recipe()))


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested dictionaries into one, with keys joined by dots."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat
