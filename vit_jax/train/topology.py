"""Slices of TPU chips that a program can be compiled for without having them."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import jax

from vit_config import ConfigError
from vit_config.errors import first_line

GB, GIB = 1e9, 2**30


@dataclass(frozen=True)
class Chip:
    """Rates and sizes of a chip, by its maker: the tables of docs.cloud.google.com/tpu/docs/v4, v5e,
    v5p and v6e, as of November 2026."""

    accelerator: str
    """The prefix of the accelerator type, such as ``v5litepod`` of ``v5litepod-8``."""
    cores: int
    """Cores that the accelerator type counts for each chip."""
    sides: int
    """Sides of a torus of chips: two or three."""
    flops: float
    """Operations a second in bfloat16."""
    hbm_bytes: float
    hbm_rate: float
    """Bytes a second to and from the chip's memory."""
    link_rate: float
    """Bytes a second to other chips, all links and both directions together ("bidirectional")."""


CHIPS = {
    # links: six of 50 GB/s in each direction (arXiv 2304.01433, table 4); the page of v4 does not say
    "v4": Chip("v4", 2, 3, 275e12, 32 * GIB, 1200 * GB, 600 * GB),
    "v5e": Chip("v5litepod", 1, 2, 197e12, 16 * GIB, 819 * GB, 400 * GB),
    "v5p": Chip("v5p", 2, 3, 459e12, 95 * GIB, 2765 * GB, 1200 * GB),
    # memory at 1640 GB/s in earlier versions of the page
    "v6e": Chip("v6e", 1, 2, 918e12, 32 * GIB, 1600 * GB, 800 * GB),
}


@dataclass(frozen=True)
class Topology:
    """Devices to compile for."""

    name: str
    devices: tuple[Any, ...]
    chip: Chip | None
    """None for devices of this machine, of which nothing is known beforehand."""


def get_topology(name: str) -> Topology:
    """Return a slice such as ``v5e:2x4``, or ``local``: the devices of this machine.

    Raises:
        ConfigError: the name is unknown, or libtpu is not installed.
    """
    if name == "local":
        return Topology(name, tuple(jax.local_devices()), None)
    match = re.fullmatch(r"(\w+):(\d+(?:x\d+)*)", name)
    if match is None or match[1] not in CHIPS:
        raise ConfigError(
            f"--topology {name}: expected local, or a chip and how many stand along each side, such as"
            f" v5e:2x4; the chips are {', '.join(CHIPS)}"
        )
    chip, sizes = CHIPS[match[1]], [int(size) for size in match[2].split("x")]
    if len(sizes) > chip.sides:  # libtpu would compile for it
        raise ConfigError(f"--topology {name}: {match[1]} is made in slices of {chip.sides} sides only")
    if find_spec("libtpu") is None:
        raise ConfigError(
            f"--topology {name}: needs libtpu, the compiler for TPU; pip install 'vit-parity[preflight]'"
        )
    count = math.prod(sizes)
    # without these libtpu looks for a TPU and for the metadata server of its machine
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    os.environ["TPU_ACCELERATOR_TYPE"] = f"{chip.accelerator}-{count * chip.cores}"
    os.environ["TPU_WORKER_HOSTNAMES"] = "localhost"
    os.environ["TPU_WORKER_ID"] = "0"
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # several may compile, as nobody opens a device
    from jax.experimental import topologies

    # libtpu takes hosts of four chips for granted, but some have one
    alone: dict[str, Any] = {"chips_per_host_bounds": (1, 1, 1)} if count == 1 else {}
    try:
        devices = topologies.get_topology_desc(platform="tpu", topology_name=name, **alone).devices
    except Exception as error:  # libtpu has several kinds for a slice that is not made
        raise ConfigError(f"--topology {name}: {first_line(error)[:200]}") from None
    return Topology(name, tuple(devices), chip)
