"""Names that options of the verifier accept; in a module of their own, so that help loads no numpy."""

from __future__ import annotations

from typing import Literal, get_args

Low = Literal["bfloat16", "float16", "tf32"]
LOW: tuple[Low, ...] = get_args(Low)
"""Types smaller than float32."""

Typed = Literal["float32", "bfloat16", "float16"]
TYPED: tuple[Typed, ...] = get_args(Typed)
"""Types in which two programs may also be run, each against itself in float64."""
