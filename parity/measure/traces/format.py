"""The schema of a trace. docs/traces.md describes the files for readers without this package.

A trace is a folder: ``index.json``, and safetensors files that its events point into.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from parity.measure.site import Site, Stage
from parity.measure.traces.sample import sampled_shape
from vit_config.base import Schema

FORMAT = "vit-parity trace"
VERSION = 4
INDEX = "index.json"

_OF_LIST = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
_Shape = Annotated[tuple[Annotated[int, Field(ge=0)], ...], _OF_LIST]


class Event(Schema, frozen=True):
    """One tensor that was seen at one site."""

    step: int = Field(ge=0)
    stage: Stage
    path: str
    port: str = ""
    call: int = Field(default=0, ge=0)
    file: str = Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}$")
    """The safetensors file that holds the tensor, in the trace's folder."""
    tensor: str
    """The tensor's name in that file; events that saw the same tensor share it."""
    begin: int | None = Field(default=None, ge=0)
    """If given, `tensor` holds the numbers of several tensors, and this is the index of the first."""
    shape: _Shape
    """Shape of the whole tensor."""
    dtype: str
    spacing: _Shape | None = None
    """If given, the file holds only a sample: every n-th element along each axis, from the first on."""

    @property
    def site(self) -> Site:
        """The site at which the tensor was seen."""
        return Site(self.step, self.stage, self.path, self.port, self.call)

    @property
    def kept_shape(self) -> tuple[int, ...]:
        """Shape of the elements that the file holds."""
        return sampled_shape(self.shape, self.spacing) if self.spacing else self.shape

    @property
    def size(self) -> int:
        """Number of elements of the whole tensor."""
        return math.prod(self.shape)


class ModuleFacts(Schema, frozen=True):
    """One module of the model, described by its attributes."""

    path: str
    kind: str
    """Its class, with its Python module: ``torch.nn.modules.linear.Linear``."""
    facts: dict[str, Any] = Field(default_factory=dict)
    """Public attributes that are numbers, texts, truth values, or lists of these, such as ``eps``."""

    @property
    def name(self) -> str:
        """The bare name of the class."""
        return self.kind.rpartition(".")[2]


class Program(Schema, frozen=True):
    """Where the program is, so that a step can be run again."""

    file: str
    """Path of the Python file."""
    name: str
    """The function in it that returns a callable with its inputs, as for `parity diff FILE.py:NAME`."""
    digest: str = ""
    """SHA-256 of the file as it was recorded."""


class TraceIndex(Schema, frozen=True):
    """The file ``index.json``."""

    format: Literal["vit-parity trace"] = FORMAT
    version: Literal[4] = VERSION
    framework: Literal["torch", "jax", ""] = ""
    """The framework that ran; empty for arrays from elsewhere."""
    versions: dict[str, str] = Field(default_factory=dict)
    precision: dict[str, str] = Field(default_factory=dict)
    """Flags of the framework that could make products less precise than their types."""
    program: Program | None = None
    modules: Annotated[tuple[ModuleFacts, ...], _OF_LIST] = ()
    events: Annotated[tuple[Event, ...], _OF_LIST] = ()
    """In the order in which they were seen."""
    ended_by: str | None = None
    """The exception that ended the recording early, if one did."""
