"""Preflight: a run's step compiled ahead of time, for devices that need not be there, and its costs."""

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
from vit_config.errors import first_line
from vit_config.job import Job
from vit_jax.compiling import least_effort
from vit_jax.scanned import Loop, choose_loop
from vit_jax.step import TrainState
from vit_jax.train.flops import count_flops
from vit_jax.train.hlo import Transfers, transfers
from vit_jax.train.program import CompiledRun
from vit_jax.train.spread import make_program
from vit_jax.train.topology import Chip, Topology

APART = 1 / 16
"""How far the largest batch that fits and the smallest that does not may be apart, as a share of it."""
STEPS_PER_EPOCH = 1000
"""Epoch length for schedules; it changes only constants of the compiled step."""


@dataclass(frozen=True)
class Memory:
    """Memory that a step takes on one device, in bytes."""

    state: Mapping[str, int]
    """Parameters, moments and average, by the arithmetic of their shapes and shardings."""
    batch: int
    """The device's share of the batch, likewise."""
    arguments: int
    """State and batch as the compiler lays them out; on a TPU padded to whole tiles."""
    temporaries: int
    outputs: int
    """Results that do not take the place of an argument."""
    code: int

    @property
    def total(self) -> int:
        """Sum of everything that is in memory at once."""
        return self.arguments + self.temporaries + self.outputs + self.code


@dataclass(frozen=True)
class Flight:
    """The costs of one step on one device, or the reason why the step cannot run."""

    batch_size: int
    """Images over all devices."""
    fits: bool
    reason: str
    """The compiler's message if it gave up; else empty."""
    needed: int
    """Bytes of memory that the step needs, as far as known."""
    memory: Memory | None
    """None if the compiler gave up."""
    flops: float
    """FLOPs of matrix products, a device's share."""
    nbytes: float
    """Bytes read and written, as XLA counts them; a loop counts once."""
    transfers: Mapping[str, Transfers]
    compile_seconds: float
    cpu_seconds: float
    """CPU time of tracing, lowering and compiling, over all cores."""


def fly(
    job: Job,
    topology: Topology,
    how: Mapping[str, Any],
    batch_size: int,
    *,
    limit: float,
    quick: bool = False,
) -> Flight:
    """Compile the step of a job with another batch size.

    Args:
        how: the mesh, and how blocks are run, as `vit_jax.train.run.make_trainer` takes
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
    except Exception as error:  # jaxlib's own kind, the same for every failure
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        took, reason = (time.perf_counter() - begun, time.process_time() - worked), first_line(error)
        return Flight(batch_size, False, reason, needed(reason), None, flops, 0, {}, *took)
    took = time.perf_counter() - begun, time.process_time() - worked
    memory = _memory(compiled, state, batch)
    cost = compiled.cost_analysis() or {}
    moved = transfers(compiled.as_text() or "")
    fits, nbytes = memory.total <= limit, float(cost.get("bytes accessed", 0))
    return Flight(batch_size, fits, "", memory.total, memory, flops, nbytes, moved, *took)


def build(job: Job, topology: Topology, how: Mapping[str, Any], batch_size: int) -> CompiledRun:
    """Make the program of a job with another batch size; nothing is compiled."""
    job.check()
    recipe = job.recipe.replace(batch_size=batch_size)
    rest: dict[str, Any] = {"devices": topology.devices, "loop": loop_of(job, topology, how)}
    if how["parallel"] != "jit":
        raise ConfigError(f"--parallel {how['parallel']}: preflight compiles jax.jit; leave it out")
    return make_program(job.model, recipe, STEPS_PER_EPOCH, mesh=how["mesh"], **rest)


def loop_of(job: Job, topology: Topology, how: Mapping[str, Any]) -> Loop:
    """Choose how the blocks are run on the devices of a topology."""
    platform = topology.devices[0].platform
    return choose_loop(how["scan"], how["remat"], depth=job.model.depth, platform=platform)


def largest_batch(
    attempt: Callable[[int], Flight],
    first: Flight,
    unit: int,
) -> tuple[Flight | None, Flight | None]:
    """Find the largest batch that fits and the smallest seen not to fit, by bisection.

    Args:
        attempt: compiles the step with a batch of some size.
        first: the flight of the run's own batch.
        unit: number of images of which all sizes are multiples.

    Returns:
        None for a batch that was not found: not even one unit fits.
    """
    good, bad = (first, None) if first.fits else (None, first)
    while True:
        low, high = (good.batch_size // unit if good else 0), (bad.batch_size // unit if bad else 0)
        if bad is None:
            middle = 2 * low
        elif high - low <= max(1, APART * high):
            return good, bad
        else:
            middle = (low + high) // 2
        flight = attempt(middle * unit)
        good, bad = (flight, bad) if flight.fits else (good, flight)


@dataclass(frozen=True)
class Roofline:
    """The least time of one step on a chip, in seconds, by the resource that limits it."""

    compute: float
    memory: float
    links: float

    @property
    def seconds(self) -> float:
        """Least time of a step if computing, memory and links all work at the same time."""
        return max(self.compute, self.memory, self.links)

    @property
    def bound(self) -> str:
        """Name of the resource that takes the most time."""
        return max(("compute", "memory", "links"), key=lambda name: getattr(self, name))

    @property
    def mfu(self) -> float:
        """The greatest share of a chip's operations that can be matrix products of the model."""
        return self.compute / self.seconds


def roofline(flight: Flight, chip: Chip) -> Roofline:
    """Compute the times of a step at the rates that the chip's maker states.

    Each device sends the bytes of a collective's result once, an all-reduce's twice, as in a ring of
    many devices.
    """
    sent = sum(
        each.nbytes * (2 if kind == "all-reduce" else 1) for kind, each in flight.transfers.items()
    )
    return Roofline(
        flight.flops / chip.flops, flight.nbytes / chip.hbm_rate, sent / (chip.link_rate / 2)
    )


def arguments(program: CompiledRun, job: Job, batch_size: int) -> tuple[TrainState, dict[str, Any]]:
    """Return shapes and types of the state and of a batch, as the devices take them."""
    cfg, recipe = job.model, job.recipe
    labels = (
        ((batch_size, cfg.num_classes), jnp.float32)
        if recipe.mix.mixes or recipe.several
        else ((batch_size,), jnp.int32)
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
    analysis = compiled.memory_analysis()
    return Memory(
        {kind: _share(tree, places[kind]) for kind, tree in kinds.items() if tree is not None},
        _share(batch, of_batch),
        analysis.argument_size_in_bytes,
        analysis.temp_size_in_bytes,
        analysis.output_size_in_bytes - analysis.alias_size_in_bytes,
        analysis.generated_code_size_in_bytes,
    )


def _share(tree: Any, places: Any) -> int:
    """Count the bytes of arrays on one device."""
    sizes = jax.tree.map(
        lambda leaf, place: math.prod(place.shard_shape(leaf.shape)) * leaf.dtype.itemsize, tree, places
    )
    return sum(jax.tree.leaves(sizes))


def needed(message: str) -> int:
    """Read how many bytes the compiler says that it would need.

    The message has ``Used 20.31G of 15.75G hbm``, or of temporaries alone ``(53.02G) exceeds
    available HBM (15.75G)``.
    """
    match = re.search(r"(?:Used |\()([\d.]+)([KMG]?)(?: of|\) exceeds)", message)
    return int(float(match[1]) * 1024 ** " KMG".index(match[2] or " ")) if match else 0
