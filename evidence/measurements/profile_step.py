"""Where a training step on a CPU spends its time, operation by operation of the compiled program.

    taskset -c 0 python -m evidence.measurements.profile_step [--preset NAME] [--batch N] [--steps N]
                                                              [--rows N]

Runs the JAX twin's step under the profiler. Of each operation the fastest of all steps counts, which
leaves out what other programs take; operations of the same shape from the same line of the model are one
row. Give it one core: on several, large products run on while later operations begin, and the time of
the line that started them is short.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from vit_config.errors import first_line

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.profiler import ProfileData

from vit_config import Recipe, preset
from vit_jax.compiling import compiler_options
from vit_jax.host_memory import keep_freed_memory
from vit_jax.step import init_state, make_train_step

_INSTRUCTION = re.compile(
    r"^  (?:ROOT )?%?([\w.\-]+) = (\S+?)(?:\{\S*)? ([a-z][\w\-]*)\((.*)$", re.MULTILINE
)


class Kind(NamedTuple):
    """Properties that the operations of one row share."""

    operation: str
    shape: str
    origin: str
    """Its name in JAX, and a number for the lines of Python that led to it."""


class Whole(NamedTuple):
    """The cost of a whole step: medians, without the profiler."""

    wall: float
    """Milliseconds."""
    cpu: float
    """Milliseconds of all cores."""
    switches: float
    """Number of times a thread waited and gave its core away."""


def profile(name: str, batch_size: int, steps: int) -> tuple[Whole, dict[str, float], dict[str, Kind]]:
    """Of a step as a whole; milliseconds of each operation, the fastest of some steps; what each is."""
    keep_freed_memory()
    cfg, recipe = preset(name), Recipe()
    stream = np.random.default_rng(0)
    images = stream.standard_normal((batch_size, *cfg.image_size, cfg.in_channels), np.float32)
    labels = stream.integers(0, cfg.num_classes, batch_size)
    batch = {"image": jnp.asarray(images), "label": jnp.asarray(labels, jnp.int32)}
    state = jax.jit(lambda: init_state(cfg, recipe, 1000))()
    step = jax.jit(make_train_step(cfg, recipe, 1000), donate_argnums=0)
    options: dict[str, Any] = {**compiler_options("cpu")}
    program = step.lower(state, batch).compile(options)
    for _ in range(3):  # the C library has its memory by then
        state, _ = jax.block_until_ready(program(state, batch))
    taken: list[Whole] = []
    for _ in range(steps):
        before = _now()
        state, _ = jax.block_until_ready(program(state, batch))
        taken.append(Whole(*(now - then for now, then in zip(_now(), before, strict=True))))
    whole = Whole(*(statistics.median(each) for each in zip(*taken, strict=True)))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(steps):
                state, _ = jax.block_until_ready(program(state, batch))
        (recorded,) = Path(folder).rglob("*.xplane.pb")
        times = fastest(ProfileData.from_file(str(recorded)))
    return whole, times, kinds(program.as_text() or "")


def _now() -> Whole:
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    return Whole(time.perf_counter() * 1e3, time.process_time() * 1e3, switches)


def fastest(recorded: Any) -> dict[str, float]:
    """Milliseconds of the fastest run of each operation."""
    times: dict[str, float] = {}
    for plane in recorded.planes:
        for line in plane.lines:
            for event in line.events:
                name = dict(event.stats).get("hlo_op")
                if name is not None and not event.name.startswith("end: "):
                    times[name] = min(times.get(name, float("inf")), event.duration_ns / 1e6)
    return times


def kinds(text: str) -> dict[str, Kind]:
    """Return the kind of each operation of a compiled program."""

    def kind(name: str, shape: str, operation: str, rest: str) -> Kind:
        said = [
            re.search(r'op_name="(?:jit\(\w+\)/)?([^"]*)"', rest),
            re.search(r"stack_frame_id=(\d+)", rest),
        ]
        origin = " #".join(each[1] for each in said if each)
        plain = re.sub(r"[.\d]+$", "", name) if operation == "fusion" else operation
        return Kind(plain, shape, origin)

    return {match[1]: kind(*match.groups()) for match in _INSTRUCTION.finditer(text)}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--preset", default="vit_tiny_patch16_224")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rows", type=int, default=40)
    options = parser.parse_args()
    whole, times, known = profile(options.preset, options.batch, options.steps)
    rows: dict[Kind, list[float]] = defaultdict(list)
    for name, milliseconds in times.items():
        rows[known.get(name, Kind(name, "", ""))].append(milliseconds)
    total = sum(times.values())
    print(
        f"{options.preset}, batch {options.batch}: a step takes {whole.wall:.0f} ms,"
        f" {whole.cpu:.0f} ms of all cores, {whole.switches:,.0f} context switches;"
        f" {total:.0f} ms in {len(times)} operations"
    )
    largest = sorted(rows.items(), key=lambda row: -sum(row[1]))
    for kind, spent in largest[: options.rows]:
        share = f"{sum(spent) / total:6.1%} {sum(spent):8.1f} ms {len(spent):4} x"
        print(f"{share} {kind.operation:28.28} {kind.shape:20} {kind.origin[:60]}")
    by_operation: dict[str, float] = defaultdict(float)
    for kind, spent in rows.items():
        by_operation["dot" if kind.operation.startswith("dot") else kind.operation] += sum(spent)
    print(f"products alone: {by_operation['dot'] / total:.1%}")


if __name__ == "__main__":
    main()
