"""``parity embed``: compute the features of images, by a checkpoint of any dialect."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from parity.cli.predict import answer
from parity.cli.support.command_line import parse
from parity.cli.support.reading import EXIF, Exif, parse_fields, shown_as
from parity.cli.support.run_weights import runs_here, weights_of
from vit_train.frameworks import Framework, default_framework


@dataclass(frozen=True)
class Embed:
    """Write the features of images, (images, D) float32: what the head sees; of a CLIP or a SigLIP, what
    is compared with texts. A file that is no image, or damaged, is named and passed over; exit status:
    0, 1 if that happened, 2 if no image could be used or for other bad input.
    """

    source: Annotated[str, tyro.conf.Positional, shown_as("RUN|CHECKPOINT")]
    """Folder of a training run, or a checkpoint of any dialect: a file, a folder, a name on the Hub."""
    images: Annotated[tuple[str, ...], tyro.conf.Positional, shown_as("IMAGE ...")]
    """Image files, or folders of them; - reads names from standard input, one a line."""
    out: Annotated[Path, shown_as("FILE.npy")]
    """Array to write, a row for each image."""
    names: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the images' names as CSV, in the order of the rows."""
    step: Annotated[int | None, shown_as("N", "the weights it ended with, else the newest or best")] = (
        None
    )
    """Step of the training run's checkpoint."""
    framework: Annotated[Framework | None, shown_as("{jax,torch}", "jax where it is installed")] = None
    """Framework of the twin to run."""
    fields: Annotated[tuple[str, ...], shown_as("FIELD=VALUE ...", name="set")] = ()
    """Fields of the schema that the file leaves open, as for `parity convert`."""
    exif: Annotated[Exif | None, EXIF] = None
    """Turn photos as their camera noted, or take them as their pixels lie."""


def main(argv: list[str], prog: str = "parity embed") -> int:
    """Run the command, which the user calls `prog`.

    Returns:
        0; 1 if some images could not be used.
    """
    arguments = parse(Embed, runs_here(argv), prog=prog, written=("out", "names"))

    from parity.porting.models.files import load

    given = parse_fields(arguments.fields)
    with weights_of(arguments.source, arguments.step) as weights:
        loaded = load(weights, framework=arguments.framework or default_framework(), given=given)
    loaded = loaded.seeing(arguments.exif)
    files = {"json": None, "csv": arguments.names, "features": arguments.out}
    return answer(
        loaded,
        arguments.images,
        prog=prog,
        k=0,
        classes=loaded.most_probable,
        files=files,
        embedded=loaded.has_texts,
    )
