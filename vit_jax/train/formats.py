"""The layout in a device's memory that XLA would choose for a training state.

Arguments of a step lie in JAX's default layout. Where XLA computes on another order of axes or other
tiles, the step copies them there and back, which takes memory and time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.experimental.layout import Format, Layout

from vit_config.job import Job
from vit_jax.compiling import compiler_options, least_effort
from vit_jax.train.layout import leaf_name
from vit_jax.train.preflight import Flight, arguments, build
from vit_jax.train.topology import Topology


@dataclass(frozen=True)
class Wish:
    """The layouts that XLA prefers, and their savings on one device."""

    tensors: Mapping[str, tuple[str, str]]
    """The layout as it is and the one that XLA chooses, where they differ; by name of the parameter,
    moment or average, the same name for all blocks."""
    temporaries: int
    """Bytes of temporaries saved."""
    nbytes: float
    """Bytes read and written saved; a loop counts once."""


def wish(
    job: Job, topology: Topology, how: Mapping[str, Any], flight: Flight, *, quick: bool = False
) -> Wish | None:
    """Compile the step of a flight again, with the layout of the state left to the compiler.

    Returns:
        None where the step, as it is, was not compiled.
    """
    if flight.memory is None:
        return None
    program = build(job, topology, how, flight.batch_size)
    step: Any = program.train_step
    state, batch = arguments(program, job, flight.batch_size)
    of_state, of_batch = flight.formats
    free = jax.tree.map(lambda each: Format(Layout.AUTO, each.sharding), of_state)
    compiled: Any = (
        jax.jit(
            step.__wrapped__,
            in_shardings=(free, of_batch),
            out_shardings=(free, None),
            donate_argnums=0,
            compiler_options=compiler_options(topology.devices[0].platform),
        )
        .lower(state, batch)
        .compile(least_effort() if quick else None)
    )
    layouts = differing(of_state, compiled.input_formats[0][0])
    memory, accessed = compiled.memory_analysis(), (compiled.cost_analysis() or {})["bytes accessed"]
    saved = flight.memory.temporaries - memory.temp_size_in_bytes
    return Wish(layouts, saved, flight.nbytes - accessed)


def differing(usual: Any, chosen: Any) -> dict[str, tuple[str, str]]:
    """Return the tensors whose layouts differ between two trees of formats, by name; blocks are one."""
    layouts: dict[str, tuple[str, str]] = {}
    pairs = zip(jax.tree_util.tree_leaves_with_path(usual), jax.tree.leaves(chosen), strict=True)
    for (path, ours), other in pairs:
        if ours.layout != other.layout:
            name = re.sub(r"^blocks\.[\d-]+\.", "blocks.*.", leaf_name(path))
            layouts[name] = (_layout_text(ours.layout), _layout_text(other.layout))
    return layouts


def _layout_text(layout: Any) -> str:
    """Write a layout, such as ``(1, 0) in tiles of 8 x 128``: axes from the slowest to the fastest."""
    tile = layout.tiling[0] if layout.tiling else ()
    tiles = f" in tiles of {' x '.join(map(str, tile))}" if tile else ""
    return f"({', '.join(map(str, layout.major_to_minor))}){tiles}"
