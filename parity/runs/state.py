"""A training run between two steps, in no framework's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vit_config import Recipe

Arrays = dict[str, np.ndarray]
"""By common name, in PyTorch's layout."""

ADAM = ("exp_avg", "exp_avg_sq")
"""Adam's first and second moments, as torch names them; optax has ``mu`` and ``nu``."""
SGD = ("momentum_buffer",)
"""The running sum of gradients; optax has ``trace``."""


@dataclass(frozen=True)
class TrainingState:
    """All that changes from step to step; what random numbers come next follows from the recipe's seed
    and `step`, and so does the next batch."""

    step: int
    """Updates done."""
    params: Arrays
    moments: dict[str, Arrays] = field(default_factory=dict)
    """What the optimiser keeps, by torch's name for it; each like the parameters."""
    ema: Arrays | None = None
    """The average of the parameters; None where none is kept."""

    def parts(self) -> dict[str, Arrays]:
        """The parameters, each moment and the average, by a name for each."""
        ema = {} if self.ema is None else {"ema": self.ema}
        return {"parameters": self.params, **self.moments, **ema}

    @classmethod
    def of_parts(cls, step: int, parts: Mapping[str, Arrays]) -> TrainingState:
        """The state with these `parts`."""
        moments = {name: part for name, part in parts.items() if name not in ("parameters", "ema")}
        return cls(step, parts["parameters"], moments, parts.get("ema"))

    def astype(self, dtype: str) -> TrainingState:
        """The same numbers in another type."""
        return TrainingState.of_parts(
            self.step,
            {
                part: {name: value.astype(dtype) for name, value in arrays.items()}
                for part, arrays in self.parts().items()
            },
        )


def moments_of(recipe: Recipe) -> tuple[str, ...]:
    """The moments that a recipe's optimiser keeps."""
    if recipe.optimizer == "sgd":
        return SGD if recipe.momentum else ()
    return ADAM


def zeros(params: Mapping[str, np.ndarray], recipe: Recipe) -> dict[str, Arrays]:
    """The moments before the first update."""
    return {
        moment: {name: np.zeros_like(value) for name, value in params.items()}
        for moment in moments_of(recipe)
    }
