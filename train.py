"""Train a Vision Transformer; ``python train.py --help`` explains, ``plot RUN`` draws a finished run."""

import sys

from parity.cli import run

if __name__ == "__main__":
    command, argv = ("plot", sys.argv[2:]) if sys.argv[1:2] == ["plot"] else ("train", sys.argv[1:])
    sys.exit(run(command, argv))
