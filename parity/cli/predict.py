"""``parity predict``: what a model of any checkpoint says of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from parity.cli.eval import installed, weights_of
from parity.cli.support.command_line import parse
from parity.porting.files import load
from parity.porting.loaded import Framework


@dataclass(frozen=True)
class Arguments:
    """The most probable classes of images."""

    source: Annotated[str, tyro.conf.Positional]
    """Folder of a training run, or a checkpoint of any dialect: a file, a folder, a name on the Hub."""
    images: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Files of images."""
    framework: Framework | None = None
    """Which twin computes; default: JAX where it is installed."""
    k: int = 5
    """Classes to name."""


def main(argv: list[str], prog: str = "parity predict") -> int:
    """Run the command, which the user calls `prog`; 0."""
    arguments = parse(Arguments, argv, prog=prog)
    loaded = load(weights_of(arguments.source)[0], framework=arguments.framework or installed())
    for image, classes in zip(
        arguments.images, loaded.predict(arguments.images, k=arguments.k), strict=True
    ):
        print(f"{image}  " + ", ".join(f"{each.label} {each.probability:.4f}" for each in classes))
    return 0
