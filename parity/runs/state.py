"""The state of a training run between two steps, independent of the framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vit_config import Recipe

Arrays = dict[str, np.ndarray]
"""Arrays by the twins' names, in PyTorch's layout."""

ADAM = ("exp_avg", "exp_avg_sq")
"""Adam's first and second moments, as torch names them; optax has ``mu`` and ``nu``."""
SGD = ("momentum_buffer",)
"""The running sum of gradients; optax has ``trace``."""


@dataclass(frozen=True)
class TrainingState:
    """Everything that changes from step to step.

    The next random numbers and the next batch follow from the recipe's seed and `step`.
    """

    step: int
    """Number of updates done."""
    params: Arrays
    moments: dict[str, Arrays] = field(default_factory=dict)
    """The optimiser's moments by torch's names, each with an array per parameter."""
    ema: Arrays | None = None
    """The exponential moving average of the parameters; None if none is kept."""

    def parts(self) -> dict[str, Arrays]:
        """Return the parameters, each moment and the average, by name."""
        ema = {} if self.ema is None else {"ema": self.ema}
        return {"parameters": self.params, **self.moments, **ema}

    @classmethod
    def of_parts(cls, step: int, parts: Mapping[str, Arrays]) -> TrainingState:
        """Build the state from the `parts` of one."""
        moments = {name: part for name, part in parts.items() if name not in ("parameters", "ema")}
        return cls(step, parts["parameters"], moments, parts.get("ema"))

    def astype(self, dtype: str) -> TrainingState:
        """Return the state with all arrays cast to another type."""
        return TrainingState.of_parts(
            self.step,
            {
                part: {name: value.astype(dtype) for name, value in arrays.items()}
                for part, arrays in self.parts().items()
            },
        )


def moments_of(recipe: Recipe) -> tuple[str, ...]:
    """Return the names of the moments that a recipe's optimiser keeps."""
    if recipe.optimizer == "sgd":
        return SGD if recipe.momentum else ()
    return ADAM
