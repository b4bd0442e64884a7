"""The file format of a certificate, field by field; docs/certificate.md explains each field."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from parity.measure.device import Device
from parity.measure.precision import Precision
from parity.measure.tolerance import DType
from parity.measure.verdict import Verdict
from vit_config.base import Schema

FORMAT = "vit-parity certificate"
VERSION = 1


def _number(value: Any) -> Any:
    return float(value) if value in ("inf", "-inf", "nan") else value


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


Number = Annotated[
    float, Field(allow_inf_nan=True), BeforeValidator(_number), PlainSerializer(_plain, when_used="json")
]
"""A float; JSON has no infinities, so they are the strings "inf", "-inf" and "nan"."""


class Asked(Schema, frozen=True):
    """The arguments of a check: with schema, recipe and checkpoint, enough to run it again."""

    dtypes: list[DType]
    precision: Precision
    device: Device = "cpu"
    batch_size: int
    seed: int
    fault: str | None
    wrong: dict[str, Any] | None = None
    token_offset: float = 0.0
    steps: int | None = None
    """Number of training steps; None where nothing was trained."""
    data: str | None = None
    config: str | None = None

    def command(self, subject: str) -> list[str]:
        """Return the command line, with every flag that affects the outcome written out."""
        command = "check" if self.steps is None else "check-steps"
        words = ["parity", command, subject, "--dtype", *self.dtypes, "--precision", self.precision]
        words += ["--device", self.device] if self.device != "cpu" else []
        words += ["--batch-size", str(self.batch_size), "--seed", str(self.seed)]
        for flag, value in (
            ("--steps", self.steps),
            ("--data", self.data),
            ("--config", self.config),
            ("--token-offset", self.token_offset or None),
            ("--fault", self.fault),
        ):
            words += [] if value is None else [flag, str(value)]
        for field, value in (self.wrong or {}).items():
            words += ["--wrong", f"{field}={json.dumps(value)}"]
        return words


class CheckpointFile(Schema, frozen=True):
    """The checkpoint that was checked."""

    path: str
    name: str
    sha256: str
    dialect: str


class Data(Schema, frozen=True):
    """The data that the twins were fed."""

    name: str
    words: str
    batches: int
    sha256: str
    fingerprint: str | None


class Pair(Schema, frozen=True):
    """One digest for each twin."""

    jax: str
    torch: str

    @property
    def same(self) -> bool:
        """Whether both twins have the same numbers, bit for bit."""
        return self.jax == self.torch


class Digests(Schema, frozen=True):
    """Digests of the parameters of one type."""

    initial: Pair
    final: Pair | None


class Flags(Schema, frozen=True):
    """The precision that was asked for in float32 products, and the flags of both frameworks."""

    requested: Precision
    jax: dict[str, str]
    torch: dict[str, str]


class Stability(Schema, frozen=True):
    """The stability of the recipe, judged by its shadows."""

    quiet: bool
    growth: Number
    lost_at: int | None
    sentence: str


class Curves(Schema, frozen=True):
    """Distances of one part of the state from the JAX twin's run, after each step."""

    twins: list[Number]
    shadows: list[list[Number]]
    limits: list[Number]
    failures: list[int]


class FreeRun(Schema, frozen=True):
    """The whole run in one type, not synchronised."""

    losses: list[Number]
    curves: dict[str, Curves]
    stability: Stability
    unseen: int
    unseen_difference: Number


class Yardstick(Schema, frozen=True):
    """The tolerances, and the free runs with their shadows, that the check judged by."""

    tolerances: dict[str, Number]
    runs: dict[DType, FreeRun]


class Worst(Schema, frozen=True):
    """The tensor nearest to, or farthest beyond, its limit."""

    tensor: str
    step: int | None
    jax_error: Number
    torch_error: Number
    limit: Number
    origin: str

    @property
    def error(self) -> float:
        """The larger error."""
        return max(self.jax_error, self.torch_error)


class Level(Schema, frozen=True):
    """All tensors of one level in one type."""

    dtype: DType
    level: str
    tensors: int
    failures: int
    passed: bool
    worst: Worst


class Certificate(Schema, frozen=True):
    """The whole file, but for its seal."""

    format: Literal["vit-parity certificate"]
    version: Literal[1]
    made: str
    kind: Literal["function", "training"]
    subject: str
    verdict: Verdict
    passed: bool
    reasons: list[str]
    command: list[str]
    arguments: Asked
    config: dict[str, Any]
    config_sha256: str
    dropped: list[str]
    recipe: dict[str, Any] | None
    recipe_sha256: str | None
    checkpoint: CheckpointFile | None
    data: Data
    seeds: dict[str, int | list[int]]
    parameters: dict[DType, Digests]
    precision: Flags
    versions: dict[str, str]
    devices: dict[str, str]
    sources: dict[str, str]
    yardstick: Yardstick
    levels: list[Level]
