"""``parity inspect``: show what a preset or a checkpoint is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from parity.cli.support.command_line import parse
from parity.cli.support.reading import ReadingFlags, parse_size, shown_as
from vit_config import ConfigError

MAX_BATCH = 2**12
"""Most images in a batch; beyond it the bytes of attention weights no longer fit in 64 bits."""


@dataclass(frozen=True)
class Inspect:
    """Show what a model is made of: its schema, its preprocessing, and each layer's type, shapes,
    parameters and FLOPs; of a checkpoint of any dialect also its kind, where each field of its schema
    is from, and anomalies of its values.
    """

    subject: Annotated[str, tyro.conf.Positional, shown_as("NAME|FILE")] = ""
    """Preset, such as vit_base_patch16_224 or, with a pretrained tag of timm's, name.tag; or path of a
    checkpoint, a file or a folder. `parity list` shows every preset."""
    reading: Annotated[ReadingFlags, tyro.conf.arg(name="")] = field(default_factory=ReadingFlags)
    skip_values: tyro.conf.FlagCreatePairsOff[bool] = False
    """Do not look for anomalies in a checkpoint's values."""
    health: tyro.conf.FlagCreatePairsOff[bool] = False
    """Only look for anomalies: values that are not finite, zero and stuck channels, copies of blocks,
    far rows of a position table, a head that was never trained. Exit status 1 if there are any."""
    depth: int = 3
    """Levels of the tree to show below the model."""
    batch_size: int = 1
    """Images in the batch; shapes and FLOPs of the table are those of the whole batch."""
    image_size: Annotated[str | None, shown_as("HxW")] = None
    """Height and width of images to use instead of the schema's; a model without dynamic_image_size is
    built anew for them."""
    all: tyro.conf.FlagCreatePairsOff[bool] = False
    """Show every block, instead of one row for blocks that are alike, and layers that do nothing in
    evaluation, such as dropout."""
    json: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the result as JSON to this file, every layer included."""


def main(argv: list[str], prog: str = "parity inspect") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(Inspect, argv, prog=prog)

    from parity.cli.support.checkpoint_facts import layer_table, lines, totals
    from parity.cli.support.inspected import print_facts, read_subject, to_dict
    from parity.measure.shown import write_json
    from parity.measure.tables import show_table
    from parity.twins.anatomy import anatomy
    from vit_config.screen import screen

    if not arguments.subject:
        raise ConfigError(f"give a preset or a checkpoint; {prog} --help explains")
    if arguments.depth < 0:
        raise ConfigError(f"--depth {arguments.depth}: must not be negative")
    if not 1 <= arguments.batch_size <= MAX_BATCH:
        raise ConfigError(f"--batch-size {arguments.batch_size}: must be 1 to {MAX_BATCH}")
    if arguments.health:
        return _health(arguments, prog)
    size = parse_size(arguments.image_size)
    subject = read_subject(arguments.subject, arguments.reading, values=not arguments.skip_values)
    parts = anatomy(subject.config, batch_size=arguments.batch_size, image_size=size)
    console = screen(120, highlight=False)
    if arguments.json:
        write_json(arguments.json, to_dict(subject, parts))
    print_facts(console, subject, parts[0])
    rows = list(lines(parts, depth=arguments.depth, everything=arguments.all))
    show_table(layer_table(rows), console)
    console.print(totals(parts[0]))
    return 0


def _health(arguments: Inspect, prog: str) -> int:
    """Print a line for each anomaly of a checkpoint's values."""
    from parity.cli.support.inspected import read_subject
    from parity.measure.shown import write_json
    from vit_config.terminal import say

    if arguments.skip_values:
        raise ConfigError("--health looks at the values; leave --skip-values out")
    subject = read_subject(arguments.subject, arguments.reading, values=True)
    if subject.checkpoint is None or subject.anomalies is None:
        raise ConfigError(f"{subject.name} is a preset; {prog} --health goes with a checkpoint")
    if arguments.json:
        write_json(arguments.json, {"anomalies": list(subject.anomalies)})
    say(*subject.anomalies)
    arrays = subject.checkpoint.arrays.values()
    count, values = len(subject.anomalies), sum(math.prod(each.shape) for each in arrays)
    what = "nothing is odd" if not count else "1 is odd" if count == 1 else f"{count} are odd"
    say(f"{len(arrays)} tensors, {values:,} values: {what}")
    return 1 if count else 0
