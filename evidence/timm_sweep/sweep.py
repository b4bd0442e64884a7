"""Comparing timm's architectures one by one, with a line printed for each, and writing JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path

from evidence.timm_sweep.architecture import ArchitectureResult, check_all
from parity.measure.rows import Column, Rows
from parity.measure.shown import write_json
from vit_config import PRESETS, ConfigError
from vit_config.costs import costs
from vit_config.terminal import say

JSON_VERSION = 1
COLUMNS = (
    Column("architecture", 45, right=False),
    Column("parameters", 14),
    Column("tensors", 8),
    Column("JAX - timm", 12),
    Column("torch - timm", 13),
    Column("twins", 9),
    Column("gradients", 10),
)


def show(result: ArchitectureResult, table: Rows) -> None:
    """Print one architecture: its tensors, the largest error of each twin's outputs, and the verdict."""
    numbers = [""] * 4
    if result.to_timm:
        backward = result.twins.get("gradients")
        forward = max(error for level, error in result.twins.items() if level != "gradients")
        numbers = [f"{max(errors.values()):.1e}" for errors in result.to_timm.values()]
        numbers += [f"{forward:.1e}", "not run" if backward is None else f"{backward:.1e}"]
    verdict = "equal" if result.passed else "DIFFERENT: " + "; ".join(result.problems[:3])
    more = len(result.problems) - 3
    verdict += f"; {more} more" if more > 0 else ""
    table.add(result.name, f"{result.parameters:,}", str(result.tensors), *numbers, verdict=verdict)


def sweep(
    patterns: Sequence[str],
    *,
    processes: int,
    max_parameters: float | None,
    seed: int,
    json_path: Path | None,
) -> int:
    """Compare the architectures of the installed timm that match; print one line each and the total.

    Args:
        patterns: shell-style patterns of names; none means all.
        max_parameters: check the real sizes, up to this one; None checks small copies.

    Returns:
        The exit status: 0 if all are equal, else 1.

    Raises:
        ConfigError: no architecture matches.
        ModuleNotFoundError: timm is not installed.
    """
    from evidence.timm_sweep import peer

    every = peer.architectures()
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in every):
            raise ConfigError(f"timm has no architecture {pattern}; parity list shows the names")
    names = {
        name: module
        for name, module in every.items()
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    count = len(names)
    if max_parameters is not None:
        smallest_first = sorted(names, key=_parameters)
        names = {name: names[name] for name in smallest_first if _parameters(name) <= max_parameters}
        if not names:
            raise ConfigError(
                f"--max-parameters {max_parameters:g} leaves none of {count} architectures; the smallest"
                f" has {_parameters(smallest_first[0]):,}"
            )
    start, results = time.monotonic(), []
    table = Rows(*COLUMNS)
    for result in check_all(names, processes=processes, full_size=max_parameters is not None, seed=seed):
        results.append(result)
        show(result, table)
    equal = sum(result.passed for result in results)
    timm = peer.import_timm()
    size = (
        "shrunk" if max_parameters is None else f"at full size (up to {max_parameters:,.0f} parameters)"
    )
    left_out = f", {count - len(names)} larger ones left out" if count > len(names) else ""
    say(
        f"{equal} of {len(results)} architectures of timm {timm.__version__} equal, {size}{left_out};"
        f" float64, seed {seed}, {time.monotonic() - start:.0f} s"
    )
    if json_path is not None:
        data = {
            "version": JSON_VERSION,
            "timm": timm.__version__,
            "passed": equal == len(results),
            "full_size": max_parameters is not None,
            "seed": seed,
            "architectures": [{**asdict(result), "passed": result.passed} for result in results],
        }
        write_json(json_path, data)
    return 0 if equal == len(results) else 1


def _parameters(name: str) -> int:
    return costs(PRESETS[name]).parameters if name in PRESETS else 0
