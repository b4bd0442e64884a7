"""Putting a mistake into the training step of one twin, and taking it out again."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager

from parity.faults.registry import OTHERS
from parity.faults.step_table import STEP_FAULTS, StepFault
from parity.faults.twin import TWINS, TwinName
from vit_config import ConfigError, Recipe

__all__ = ["STEP_FAULTS", "StepFault", "inject_step"]


@contextmanager
def inject_step(text: str, recipe: Recipe) -> Iterator[dict[TwinName, Recipe]]:
    """Inject a fault into one twin's training code inside the context; yield each twin's recipe.

    Trainers must be made and run inside the context, from `vit_torch.optim`, `vit_torch.step` and
    `vit_jax.step` as they are then.

    Args:
        text: ``NAME@jax`` or ``NAME@torch``; ``NAME`` alone is in PyTorch.

    Raises:
        ConfigError: there is no such fault or twin, or the recipe cannot have the fault.
    """
    name, _, twin = text.partition("@")
    if name not in STEP_FAULTS:
        near = difflib.get_close_matches(name, STEP_FAULTS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"they are {', '.join(STEP_FAULTS)}; {OTHERS}"
        raise ConfigError(f"unknown fault of training steps {name!r}; {hint}")
    fault = STEP_FAULTS[name]
    twin = twin or "torch"
    if twin not in fault.twins:
        raise ConfigError(f"{text}: the fault {name!r} can be in {' and '.join(fault.twins)} only")
    for key, accepted in fault.needs.items():
        if not accepted(value := getattr(recipe, key)):
            raise ConfigError(f"the fault {name!r} has nothing to break where {key} = {value!r}")
    wrong = recipe.replace(**fault.recipe(recipe))
    with fault.patched(twin):
        yield {each: wrong if each == twin else recipe for each in TWINS}
