"""Run the speedruns, and compare the curves of those that are the same in two frameworks.

    python -m evidence.speedruns.table

prints the table of docs/speedruns.md.
"""

import numpy as np

from evidence import positional
from evidence.speedruns import digits_jax, digits_torch

EPOCH = 14
"""Steps."""


def main():
    """One row a file."""
    print("| file | test accuracy | seconds | loss of the last epoch |\n|---|---|---|---|")
    curves = []
    for module in (digits_jax, digits_torch):
        losses, accuracy, seconds = module.train()
        curves.append(losses)
        file, last = f"`{module.__name__.replace('.', '/')}.py`", losses[-EPOCH:].mean()
        print(f"| {file} | {accuracy:.4f} | {seconds:.1f} | {last:.4f} |", flush=True)
    apart = np.abs(curves[0] - curves[1])
    begin = apart[:EPOCH].max()
    print(f"\nThe curves differ by at most {begin:.1e} in the first epoch, {apart.max():.1e} in all.")


if __name__ == "__main__":
    positional(__doc__)
    main()
