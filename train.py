"""Train a Vision Transformer in JAX or PyTorch, export it, and show that both frameworks read it alike.

    python train.py                                     the digits, in JAX
    python train.py --framework torch --help            every flag: a field of the model or of the recipe
    python train.py plot runs/digits                    draw what a run has learned
    python train.py eval runs/digits                    accuracy, classes, calibration; predict RUN IMAGE
    python train.py preflight --topology v5e:2x4        whether a run fits a TPU slice; none is needed

`parity train`, `parity plot` and so on are the same where the package is installed. A run, to be read is
`main` of parity/cli/train.py.
"""

from __future__ import annotations

import sys

from parity.cli.dispatch import exit_status_of, run

PROG = "python train.py"
OTHERS = ("plot", "eval", "predict", "preflight")
"""Commands for before and after a run."""

if __name__ == "__main__":
    command, *rest = sys.argv[1:] or [""]
    if command in OTHERS:
        sys.exit(exit_status_of(run(command, rest, prog=f"{PROG} {command}")))
    sys.exit(exit_status_of(run("train", sys.argv[1:], prog=PROG)))
