"""What a trace says. docs/traces.md describes the files, for who reads them without this package.

A trace is a folder: ``index.json``, and safetensors files that its events point into.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from parity.measure.site import Site, Stage
from vit_config.base import Schema

FORMAT = "vit-parity trace"
VERSION = 1
INDEX = "index.json"

_Shape = Annotated[
    tuple[Annotated[int, Field(ge=0)], ...],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
]


class Statistics(Schema, frozen=True):
    """What is kept of a tensor that is too large to be kept whole; in float64, of finite values."""

    norm: float
    mean: float
    smallest: float
    largest: float
    not_finite: int

    @classmethod
    def of(cls, array: np.ndarray) -> Statistics:
        """The statistics of an array that is not empty."""
        flat = array.reshape(-1)
        parts = [_moments(flat[i : i + _PART]) for i in range(0, flat.size, _PART)]
        scale = max(part[0] for part in parts) or 1.0
        squares = sum((part[0] / scale) ** 2 * part[1] for part in parts)
        count = sum(part[5] for part in parts)
        largest_float = float(np.finfo(np.float64).max)
        return cls(
            norm=min(scale * math.sqrt(squares), largest_float),
            mean=sum(part[2] * (part[5] / max(count, 1)) for part in parts),
            smallest=min((part[3] for part in parts if part[5]), default=0.0),
            largest=max((part[4] for part in parts if part[5]), default=0.0),
            not_finite=flat.size - count,
        )


class Event(Schema, frozen=True):
    """One tensor that was seen at one site."""

    step: int = Field(ge=0)
    stage: Stage
    path: str
    port: str = ""
    call: int = Field(default=0, ge=0)
    file: str = Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}$")
    """The safetensors file that holds it, in the trace's folder."""
    tensor: str
    """Its name there; events that saw the same tensor share it."""
    shape: _Shape
    """Of the whole tensor."""
    dtype: str
    statistics: Statistics | None = None
    """If given, the file holds only a sample: the elements `sample_indices(size, kept)`, flattened."""

    @property
    def site(self) -> Site:
        """Where it was seen."""
        return Site(self.step, self.stage, self.path, self.port, self.call)

    @property
    def size(self) -> int:
        """How many numbers the whole tensor has."""
        return math.prod(self.shape)


class ModuleFacts(Schema, frozen=True):
    """One module of the model, as far as its attributes tell."""

    path: str
    kind: str
    """Its class, with the module it is from: ``torch.nn.modules.linear.Linear``."""
    facts: dict[str, Any] = Field(default_factory=dict)
    """Public attributes that are numbers, texts, truth values, or lists of these: ``eps``."""

    @property
    def name(self) -> str:
        """The bare name of the class."""
        return self.kind.rpartition(".")[2]


class Index(Schema, frozen=True):
    """The file ``index.json``."""

    format: Literal["vit-parity trace"] = FORMAT
    version: Literal[1] = VERSION
    framework: Literal["torch", "jax", ""] = ""
    """Which one ran; empty for arrays from elsewhere."""
    versions: dict[str, str] = Field(default_factory=dict)
    precision: dict[str, str] = Field(default_factory=dict)
    """What could make products less precise than their types: flags of the framework."""
    modules: Annotated[
        tuple[ModuleFacts, ...], BeforeValidator(lambda v: tuple(v) if isinstance(v, list) else v)
    ] = ()
    events: Annotated[
        tuple[Event, ...], BeforeValidator(lambda v: tuple(v) if isinstance(v, list) else v)
    ] = ()
    """In the order in which they were seen."""
    ended_by: str | None = None
    """The exception that ended the recording early, if one did."""


_PART = 2**15
"""Numbers that are looked at together: as many as a processor keeps at hand."""


def _moments(part: np.ndarray) -> tuple[float, float, float, float, float, int]:
    """Of the finite numbers: scale, sum of squares over scale^2, mean, smallest, largest, count."""
    values = part.astype(np.float64)
    with np.errstate(all="ignore"):
        suspicious = not np.isfinite(values @ values)  # some are not finite, or squares are too large
    if suspicious:
        values = values[np.isfinite(values)]
    if not values.size:
        return 0.0, 0.0, 0.0, 0.0, 0.0, 0
    smallest, largest = float(values.min()), float(values.max())
    scale = max(-smallest, largest) or 1.0
    scaled = values / scale
    mean = scale * float(scaled.mean())
    return scale, float(scaled @ scaled), mean, smallest, largest, values.size


def sample_indices(size: int, kept: int) -> np.ndarray:
    """Which elements of a flattened tensor are kept: so many, evenly spread, the first included."""
    return np.arange(kept, dtype=np.int64) * size // kept
