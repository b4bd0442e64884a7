"""Train a Vision Transformer; ``python train.py --help`` explains, ``plot RUN`` draws a finished run."""

import sys

from parity.cli import run

if __name__ == "__main__":
    if sys.argv[1:2] == ["plot"]:
        sys.exit(run("plot", sys.argv[2:], prog="python train.py plot"))
    sys.exit(run("train", sys.argv[1:], prog="python train.py"))
