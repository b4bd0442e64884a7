"""How often a check in float32 finds a twin beyond its limit by luck, before and after more runs.

    python -m evidence.measurements.luck [PRESET] [--batch 1] [--seeds 300]

Both twins run on re-drawn weights and random images of one seed after the other. Counted is in how many
a tensor is beyond its limit in the first run, and in how many still in the root mean square of all runs
(`parity.twins.judge`); of the former, each is printed with how many limits it is off before and after.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from parity.measure.redraw import branch_norms, random_batch, redraw
from parity.twins.judge import Runs, compare
from parity.twins.run_jax import JaxTwin
from parity.twins.run_torch import TorchTwin
from parity.twins.task import nudged_runs, rounded
from vit_config import preset
from vit_config.errors import first_line

DTYPE = "float32"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("preset", nargs="?", default="mnist_exercise")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=300)
    arguments = parser.parse_args()
    cfg = preset(arguments.preset)
    twins = (
        JaxTwin(cfg, precision="highest", device="cpu"),
        TorchTwin(cfg, precision="highest", device="cpu"),
    )
    first = still = 0
    for seed in range(arguments.seeds):
        start = rounded(
            lambda name, kind, shape, seed=seed: redraw(
                name, kind, shape, seed, branch_norms=branch_norms(cfg)
            ),
            random_batch(cfg, arguments.batch, seed),
            DTYPE,
        )
        (jax, torch), exact = (
            [twin.run(*start, dtype) for twin in twins] for dtype in (DTYPE, "float64")
        )
        runs = Runs(DTYPE, jax, torch, exact[0], exact[1])
        before = _worst(runs)
        if before <= 1:
            continue
        again = lambda k, start=start: nudged_runs(twins, DTYPE, start, DTYPE, k)  # noqa: E731
        after = _worst(replace(runs, again=again))
        first, still = first + 1, still + (after > 1)
        print(f"seed {seed}: {before:.2f} limits, {after:.2f} after more runs")
    said = f"{first} of {arguments.seeds} beyond their limit, {still} after more runs"
    print(f"{arguments.preset}, batches of {arguments.batch}: {said}")


def _worst(runs: Runs) -> float:
    """Return by how many limits the worst tensor is off."""
    return max(level.worst.score for level in compare(runs)[0])


if __name__ == "__main__":
    main()
