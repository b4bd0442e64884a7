"""Names that options of the verifier accept; in a module of their own, so that help loads no numpy."""

from __future__ import annotations

from typing import Literal, get_args

How = Literal["auto", "name", "order", "values"]
HOW: tuple[How, ...] = get_args(How)
"""Ways to pair modules: by equal names; by kinds, shapes and the order of calls; by these and the
values; or by names where most are equal, else by order."""

Low = Literal["bfloat16", "float16", "tf32"]
LOW: tuple[Low, ...] = get_args(Low)
"""Types smaller than float32."""

Typed = Literal["float32", "bfloat16", "float16"]
TYPED: tuple[Typed, ...] = get_args(Typed)
"""Types in which two programs may also be run, each against itself in float64."""
