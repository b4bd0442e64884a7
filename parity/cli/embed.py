"""``parity embed``: compute the features of images, by a checkpoint of any dialect."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from parity.cli.predict import answer
from parity.cli.support.command_line import parse
from parity.cli.support.reading import parse_fields, shown_as
from parity.cli.support.run_weights import OfModel, runs_here


@dataclass(frozen=True)
class Embed(OfModel):
    """Write the features of images, (images, D) float32: what the head sees; of a CLIP or a SigLIP, what
    is compared with texts. A file that is no image, or damaged, is named and passed over; exit status:
    0, 1 if that happened, 2 if no image could be used or for other bad input.
    """

    images: Annotated[tuple[str, ...], tyro.conf.Positional, shown_as("IMAGE ...")]
    """Image files, or folders of them; - reads names from standard input, one a line."""
    out: Annotated[Path, shown_as("FILE.npy")]
    """Array to write, a row for each image."""
    names: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the images' names as CSV, in the order of the rows."""
    fields: Annotated[tuple[str, ...], shown_as("FIELD=VALUE ...", name="set")] = ()
    """Fields of the schema that the file leaves open, as for `parity convert`."""


def main(argv: list[str], prog: str = "parity embed") -> int:
    """Run the command, which the user calls `prog`.

    Returns:
        0; 1 if some images could not be used.
    """
    arguments = parse(Embed, runs_here(argv), prog=prog, written=("out", "names"))

    loaded = arguments.load(given=parse_fields(arguments.fields))
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
