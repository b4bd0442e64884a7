"""The mesh that a step is spread over: named axes, written ``data=4,fsdp=2,tensor=1``.

``data`` splits the batch and keeps the whole state on each of its devices; ``fsdp`` splits batch and
state (ZeRO stage 3, arXiv 1910.02054); ``tensor`` splits heads and hidden layers (Megatron-LM, arXiv
1909.08053) and leaves the batch whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental.mesh_utils import create_device_mesh
from jax.sharding import AxisType, Mesh

from vit_config import ConfigError

AXES = ("data", "fsdp", "tensor")
"""From the slowest links to the fastest: devices next to each other share a tensor axis."""
BATCH_AXES = ("data", "fsdp")
"""The axes that split a batch."""
ONE_AXIS = "data=-1"
"""The mesh of a run that asks for none: every device has the whole state."""


def parse_mesh(text: str, num_devices: int) -> dict[str, int]:
    """Parse the size of every axis; those that are not named have size 1.

    Args:
        text: such as ``data=4,fsdp=2``; one size may be -1, which takes the devices that are left.

    Raises:
        ConfigError: the text is not of that form, or not a mesh of that many devices.
    """
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = (word.strip() for word in part.partition("="))
        if name not in AXES:
            raise ConfigError(f"mesh {text}: no axis is called {name!r}; the axes are {', '.join(AXES)}")
        if name in sizes:
            raise ConfigError(f"mesh {text}: {name} is given twice; give each axis once")
        if not size.removeprefix("-").isdecimal() or int(size) < -1 or int(size) == 0:
            raise ConfigError(
                f"mesh {text}: the size of {name} is {size!r}; give a number of devices, or -1 for those"
                " that are left"
            )
        sizes[name] = int(size)
    given = math.prod(size for size in sizes.values() if size != -1)
    free = [name for name, size in sizes.items() if size == -1]
    if len(free) > 1:
        raise ConfigError(f"mesh {text}: {' and '.join(free)} are both -1; only one axis can be")
    if given > num_devices:
        emulated = f"`XLA_FLAGS=--xla_force_host_platform_device_count={given}`"
        raise ConfigError(
            f"mesh {text}: takes {given} devices, but there are {num_devices}; on a CPU,"
            f" {emulated} in the environment emulates as many"
        )
    if num_devices % given:
        raise ConfigError(f"mesh {text}: {given} does not divide the {num_devices} devices")
    if free:
        sizes[free[0]] = num_devices // given
    elif given != num_devices:
        raise ConfigError(
            f"mesh {text}: takes {given} of the {num_devices} devices; use all, by an axis of -1"
        )
    return {name: sizes.get(name, 1) for name in AXES}


def make_mesh(sizes: dict[str, int], devices: Sequence[Any]) -> Mesh:
    """Make a mesh of all axes over `devices`, arranged by how they are linked.

    Its axes are `AxisType.Auto` on purpose: the model is one function that knows no devices, only the
    step's arguments, results and gathered parameters have a stated place (`layout.py`), and the compiler
    finds one for all between. Explicit axes would ask every reshape of the model where its result is.
    """
    shape, kinds = tuple(sizes[name] for name in AXES), (AxisType.Auto,) * len(AXES)
    try:
        return jax.make_mesh(shape, AXES, axis_types=kinds, devices=devices)
    except NotImplementedError:  # an axis that is no product of whole sides of the slice shares a side
        arranged = create_device_mesh(shape, devices, allow_split_physical_axes=True)
        return Mesh(arranged, AXES, axis_types=kinds)
