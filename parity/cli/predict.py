"""``parity predict``: what a model of any checkpoint says of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from parity.cli.eval import installed
from parity.cli.support.command_line import parse
from parity.cli.support.reading import shown_as
from parity.cli.support.run_url import runs_here
from parity.cli.support.run_weights import weights_of
from vit_train.frameworks import Framework


@dataclass(frozen=True)
class Arguments:
    """The most probable classes of images."""

    source: Annotated[str, tyro.conf.Positional, shown_as("RUN|CHECKPOINT")]
    """Folder of a training run, or a checkpoint of any dialect: a file, a folder, a name on the Hub."""
    images: Annotated[tuple[str, ...], tyro.conf.Positional, shown_as("IMAGE ...")]
    """Files of images."""
    step: Annotated[int | None, shown_as("N", "the weights it ended with, else the newest or best")] = (
        None
    )
    """Which checkpoint of a training run."""
    framework: Annotated[Framework | None, shown_as("{jax,torch}", "jax where it is installed")] = None
    """Which twin computes."""
    k: int = 5
    """Classes to name."""


def main(argv: list[str], prog: str = "parity predict") -> int:
    """Run the command, which the user calls `prog`; 0."""
    arguments = parse(Arguments, runs_here(argv), prog=prog)

    from parity.porting.files import load

    with weights_of(arguments.source, arguments.step) as weights:
        loaded = load(weights, framework=arguments.framework or installed())
    for image, classes in zip(
        arguments.images, loaded.predict(arguments.images, k=arguments.k), strict=True
    ):
        print(f"{image}  " + ", ".join(f"{each.label} {each.probability:.4f}" for each in classes))
    return 0
