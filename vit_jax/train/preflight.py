"""The step of a run compiled ahead of time, for devices that need not be there, and what it takes."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from vit_config import ConfigError
from vit_config.job import Job
from vit_jax.compiling import least_effort
from vit_jax.scanned import Loop, choose_loop
from vit_jax.step import TrainState
from vit_jax.train.flops import count_flops
from vit_jax.train.hlo import Transfers, transfers
from vit_jax.train.program import Program
from vit_jax.train.sharding import make_program
from vit_jax.train.spread import make_mesh_program
from vit_jax.train.topology import Chip, Topology

STEPS_PER_EPOCH = 1000
"""For schedules; the compiled step differs by constants only."""


@dataclass(frozen=True)
class Memory:
    """Bytes on one device."""

    state: Mapping[str, int]
    """Of parameters, moments and average by the arithmetic of their shapes and places."""
    batch: int
    """Of a share of the batch, likewise."""
    arguments: int
    """Of both as the compiler lays them out; on a TPU padded to whole tiles."""
    temporaries: int
    outputs: int
    """Of results that do not take the place of an argument."""
    code: int

    @property
    def total(self) -> int:
        """All that is there at once."""
        return self.arguments + self.temporaries + self.outputs + self.code


@dataclass(frozen=True)
class Flight:
    """What one step takes on one device, or why it cannot be."""

    batch_size: int
    """Over all devices."""
    fits: bool
    reason: str
    """What the compiler says where the step does not fit."""
    needed: int
    """Bytes of memory, as far as they are known."""
    memory: Memory | None
    """None where the compiler gave up."""
    flops: float
    """Of matrix products, a device's share."""
    nbytes: float
    """Read and written, as XLA counts them; a loop counts once."""
    transfers: Mapping[str, Transfers]
    compile_seconds: float
    cpu_seconds: float
    """Of tracing, lowering and compiling, over all cores."""
    formats: Any = None
    """Trees of `jax.experimental.layout.Format`: of the state and of the batch, as arguments."""


def fly(
    job: Job,
    topology: Topology,
    how: Mapping[str, Any],
    batch_size: int,
    *,
    limit: float,
    quick: bool = False,
) -> Flight:
    """Compile the step of a job, with another batch size.

    Args:
        how: the mesh, or the sharding, and how blocks are run, as `vit_jax.train.run.make_trainer` takes
            them.
        limit: bytes of memory of one device.
        quick: compile with the least effort.

    Raises:
        ConfigError: mesh, model and batch do not fit together.
    """
    program = build(job, topology, how, batch_size)
    step: Any = program.train_step
    state, batch = arguments(program, job, batch_size)
    worked = time.process_time()
    traced = step.trace(state, batch)
    flops = count_flops(traced.jaxpr) / len(topology.devices)
    begun = time.perf_counter()
    try:
        compiled = traced.lower().compile(least_effort() if quick else None)
    except Exception as error:  # jaxlib's own kind, the same for whatever goes wrong
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        took, reason = (
            (time.perf_counter() - begun, time.process_time() - worked),
            str(error).partition("\n")[0],
        )
        return Flight(batch_size, False, reason, needed(reason), None, flops, 0, {}, *took)
    took = time.perf_counter() - begun, time.process_time() - worked
    memory = _memory(compiled, state, batch)
    cost = compiled.cost_analysis() or {}
    moved = transfers(compiled.as_text() or "")
    fits, nbytes = memory.total <= limit, float(cost.get("bytes accessed", 0))
    formats = compiled.input_formats[0]
    return Flight(batch_size, fits, "", memory.total, memory, flops, nbytes, moved, *took, formats)


def build(job: Job, topology: Topology, how: Mapping[str, Any], batch_size: int) -> Program:
    """The program of a job with another batch size; nothing is compiled."""
    recipe = job.recipe.replace(batch_size=batch_size)
    rest: dict[str, Any] = {"devices": topology.devices, "loop": loop_of(job, topology, how)}
    if how["mesh"] is not None:
        return make_mesh_program(job.model, recipe, STEPS_PER_EPOCH, mesh=how["mesh"], **rest)
    if how["parallel"] != "jit":
        raise ConfigError(
            f"--parallel {how['parallel']}: preflight compiles jax.jit; leave it out, or use --mesh"
        )
    return make_program(job.model, recipe, STEPS_PER_EPOCH, sharding=how["sharding"], **rest)


def loop_of(job: Job, topology: Topology, how: Mapping[str, Any]) -> Loop:
    """How the blocks are run there."""
    platform = topology.devices[0].platform
    return choose_loop(how["scan"], how["remat"], depth=job.model.depth, platform=platform)


def largest_batch(
    attempt: Callable[[int], Flight], first: Flight, unit: int, *, precision: float = 1 / 16
) -> tuple[Flight | None, Flight | None]:
    """The largest batch that fits, and the smallest that was seen not to, by bisection.

    Args:
        attempt: compiles the step with a batch of some size.
        first: what it gave for the batch of the run.
        unit: sizes are multiples of it.
        precision: how far apart the two may be, as a share of the larger one.

    Returns:
        None for a batch that was not found: not even one unit fits.
    """
    good, bad = (first, None) if first.fits else (None, first)
    while True:
        low, high = (good.batch_size // unit if good else 0), (bad.batch_size // unit if bad else 0)
        if bad is None:
            middle = 2 * low
        elif high - low <= max(1, precision * high):
            return good, bad
        else:
            middle = (low + high) // 2
        found = attempt(middle * unit)
        good, bad = (found, bad) if found.fits else (good, found)


@dataclass(frozen=True)
class Roofline:
    """The least time that one step can take on a chip, in seconds, by what limits it."""

    compute: float
    memory: float
    links: float

    @property
    def seconds(self) -> float:
        """Where computing, memory and links all work at the same time."""
        return max(self.compute, self.memory, self.links)

    @property
    def bound(self) -> str:
        """What takes the most of it."""
        return max(("compute", "memory", "links"), key=lambda name: getattr(self, name))

    @property
    def mfu(self) -> float:
        """The greatest share of a chip's operations that can be matrix products of the model."""
        return self.compute / self.seconds


def roofline(flight: Flight, chip: Chip) -> Roofline:
    """Times of a step at the rates that the chip's maker states.

    Each device sends the bytes of a collective's result once, an all-reduce's twice: what a ring of many
    devices does.
    """
    sent = sum(
        each.nbytes * (2 if kind == "all-reduce" else 1) for kind, each in flight.transfers.items()
    )
    return Roofline(
        flight.flops / chip.flops, flight.nbytes / chip.hbm_rate, sent / (chip.link_rate / 2)
    )


def arguments(program: Program, job: Job, batch_size: int) -> tuple[TrainState, dict[str, Any]]:
    """Shapes and types of the state and of a batch, as the devices take them."""
    cfg, recipe = job.model, job.recipe
    labels = (
        ((batch_size, cfg.num_classes), jnp.float32) if recipe.mix.mixes else ((batch_size,), jnp.int32)
    )
    image = jax.ShapeDtypeStruct((batch_size, *cfg.image_size, cfg.in_channels), jnp.float32)
    batch = {"image": image, "label": jax.ShapeDtypeStruct(*labels)}
    if recipe.distill != "none":
        batch["teacher"] = jax.ShapeDtypeStruct((batch_size, cfg.num_classes), jnp.float32)
    return jax.eval_shape(program.initialise), batch


def _memory(compiled: Any, state: TrainState, batch: Mapping[str, Any]) -> Memory:
    of_state, of_batch = compiled.input_shardings[0]
    kinds = {"parameters": state.params, "moments": state.opt_state, "average": state.ema}
    places = {"parameters": of_state.params, "moments": of_state.opt_state, "average": of_state.ema}
    found = compiled.memory_analysis()
    return Memory(
        {kind: _share(tree, places[kind]) for kind, tree in kinds.items() if tree is not None},
        _share(batch, of_batch),
        found.argument_size_in_bytes,
        found.temp_size_in_bytes,
        found.output_size_in_bytes - found.alias_size_in_bytes,
        found.generated_code_size_in_bytes,
    )


def _share(tree: Any, places: Any) -> int:
    """Bytes of arrays on one device."""
    sizes = jax.tree.map(
        lambda leaf, place: math.prod(place.shard_shape(leaf.shape)) * leaf.dtype.itemsize, tree, places
    )
    return sum(jax.tree.leaves(sizes))


def needed(message: str) -> int:
    """How many bytes the compiler says that it would need.

    It says ``Used 20.31G of 15.75G hbm``, or of temporaries alone ``(53.02G) exceeds available
    HBM (15.75G)``.
    """
    found = re.search(r"(?:Used |\()([\d.]+)([KMG]?)(?: of|\) exceeds)", message)
    return int(float(found[1]) * 1024 ** " KMG".index(found[2] or " ")) if found else 0
