"""``parity preflight``: say whether a run fits its devices, and what a step takes, without them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from parity.cli.support.command_line import parse as read
from parity.cli.support.train_options import Request, parse
from vit_config import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from vit_jax.train.preflight import Flight, Memory
    from vit_jax.train.topology import Topology

MIB, GIB = 2**20, 2**30


@dataclass(frozen=True)
class PreflightOptions:
    """Compile the very step of a run ahead of time, for devices that need not be there, and say whether
    it fits, what is sent between devices, and how fast it can be at best.

    Takes every flag of `train`, too; the data are not needed. Exit status: 0 if the step fits, 1 if it
    does not, 2 for bad input.
    """

    topology: str = "local"
    """Devices to compile for: a slice of TPU chips such as v5e:2x4, for which the extra [preflight] has
    the compiler; or local, those of this machine."""
    hbm: Annotated[
        float | None, tyro.conf.arg(metavar="GIB", help_behavior_hint="(default: the chip's)")
    ] = None
    """Memory of each device in GiB."""
    quick: bool = False
    """Compile with the least effort, several times as fast: memory is then an upper bound, and so is the
    time of all but matrix products; transfers are the same."""
    largest: tyro.conf.FlagCreatePairsOff[bool] = False
    """Also look for the largest batch that fits; each attempt compiles anew."""


def main(argv: list[str], prog: str = "parity preflight") -> int:
    """Run the command, which the user calls `prog`.

    Returns:
        0; 1 if the step does not fit.
    """
    options, rest = read(PreflightOptions, argv, prog=prog, return_unknown_args=True)
    request = parse(rest, prog=prog)
    if request.flags.framework != "jax":
        raise ConfigError(
            f"preflight compiles a step of JAX, not of --framework {request.flags.framework}; leave it"
            " out"
        )
    if options.topology != "local":
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # nothing runs, so leave this machine's TPU alone
    from vit_config.screen import screen
    from vit_config.waiting import Waiting
    from vit_jax.train.preflight import fly, largest_batch
    from vit_jax.train.run import numerics
    from vit_jax.train.topology import get_topology

    topology = get_topology(options.topology)
    limit = memory_limit(topology) if options.hbm is None else options.hbm * GIB
    recipe = request.job.recipe
    console = screen()

    def attempt(batch_size: int) -> Flight:
        spread, quick = request.spread, options.quick
        with Waiting(f"compiling the step for a batch of {batch_size:,}"):
            return fly(request.job, topology, spread, batch_size, limit=limit, quick=quick)

    with numerics(recipe):
        first = attempt(recipe.batch_size)
        _print(console, _lines(request, topology, first, limit))
        if options.largest:
            unit = batch_unit(request, len(topology.devices))
            good, bad = largest_batch(attempt, first, unit)
            _print(console, [("largest", _largest(good, bad))])
    return 0 if first.fits else 1


def memory_limit(topology: Topology) -> float:
    """Return the bytes of memory of a device: a chip's, a GPU's own, or a share of this machine's.

    Raises:
        ConfigError: it is unknown.
    """
    if topology.chip is not None:
        return topology.chip.hbm_bytes
    stats = topology.devices[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"]
    if topology.devices[0].platform == "cpu" and hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / len(topology.devices)
    raise ConfigError("nothing says how much memory a device has; give it by --hbm")


def batch_unit(request: Request, num_devices: int) -> int:
    """Return the number that a batch must be a multiple of."""
    from vit_jax.train.mesh import parse_mesh

    sizes = parse_mesh(request.flags.mesh, num_devices)
    return sizes["data"] * sizes["fsdp"] * request.job.recipe.accumulate


def _lines(
    request: Request, topology: Topology, flight: Flight, limit: float
) -> Iterator[tuple[str, str]]:
    from vit_config.parameters import parameters
    from vit_jax.scanned import account
    from vit_jax.train.preflight import loop_of, roofline
    from vit_jax.weights import abstract_model

    job, count, recipe = request.job, len(topology.devices), request.job.recipe
    numbers = sum(_product(each.shape) for each in parameters(job.model).values())
    kind = topology.devices[0].device_kind
    yield "run", f"{numbers:,} parameters, batch {recipe.batch_size:,}, {recipe.dtype}"
    yield "devices", f"{topology.name}: {count} x {kind}, {_size(limit)} each; mesh {request.flags.mesh}"
    loop = loop_of(job, topology, request.spread)
    yield "blocks", account(abstract_model(job.model).blocks, loop)
    verdict, least = "fits" if flight.fits else "does not fit", "" if flight.memory else "at least "
    share = f" ({flight.needed / limit:.0%})"
    yield "verdict", f"{verdict}: {least}{_size(flight.needed)} of {_size(limit)} on each device{share}"
    if flight.memory is None:
        yield "XLA says", flight.reason
    else:
        yield "memory", _memory(flight.memory)
        moved = "; ".join(
            f"{kind} {each.count} x, {_size(each.nbytes)}" for kind, each in flight.transfers.items()
        )
        yield "transfers", moved or "none"
        once = " (a loop's once; --scan off counts them all)" if loop.scan else ""
        yield (
            "work",
            f"{flight.flops:.4g} FLOPs in matrix products, {_size(flight.nbytes)} accessed{once}",
        )
        if topology.chip is not None:
            best = roofline(flight, topology.chip)
            parts = {"compute": best.compute, "memory": best.memory, "links": best.links}
            yield "roofline", ", ".join(f"{part} {time * 1e3:.3g} ms" for part, time in parts.items())
            rate = recipe.batch_size / best.seconds
            mfu = f"MFU {best.mfu:.0%}; bound by {best.bound}"
            if best.bound == "compute":  # products alone: other work is not counted
                mfu = "bound by compute, which says nothing of the MFU"
            yield "at best", f"{best.seconds * 1e3:.3g} ms a step, {rate:,.0f} images/s, {mfu}"
    if recipe.device_side is not None:
        yield "left out", "the changes of images on the devices, a program of its own before each step"
    took = f"in {flight.compile_seconds:.3g} s"
    yield "compiled", f"{took}; {flight.cpu_seconds:.3g} s of CPU time with tracing"


def _memory(memory: Memory) -> str:
    kinds = {**memory.state, "batch": memory.batch}
    arguments = ", ".join(f"{kind} {_size(nbytes)}" for kind, nbytes in kinds.items())
    rest = {"temporaries": memory.temporaries, "results": memory.outputs, "program": memory.code}
    others = ", ".join(f"{kind} {_size(nbytes)}" for kind, nbytes in rest.items())
    return f"{arguments} (as laid out {_size(memory.arguments)}); {others}"


def _largest(good: Flight | None, bad: Flight | None) -> str:
    parts = ["none fits"] if good is None else [f"batch {good.batch_size:,} takes {_size(good.needed)}"]
    if bad is not None:
        parts.append(f"{bad.batch_size:,} would take {_size(bad.needed)}")
    return "; ".join(parts)


def _size(nbytes: float) -> str:
    return f"{nbytes / GIB:,.2f} GiB" if nbytes >= GIB / 10 else f"{nbytes / MIB:,.2f} MiB"


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def _print(console: Console, lines: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> None:
    for name, text in lines:
        console.print(f"{name:<10} {text}", highlight=False, markup=False, soft_wrap=True)
