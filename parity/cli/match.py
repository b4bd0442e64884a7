"""``parity match``: find whether a model holds a file's numbers, or which leaf is which of two files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from parity.cli.support.command_line import parse
from parity.cli.support.reading import shown_as
from vit_config import ConfigError
from vit_config.terminal import say


@dataclass(frozen=True)
class Match:
    """Find whether a checkpoint was really loaded into a model, as FILE.py:FUNCTION returns it: LOADED
    if each parameter holds numbers of the file, and the right ones. Or, of two files, find which leaf of
    A is which leaf of B, whatever their names: equal, transposed, reshaped, split, joined, stacked,
    heads in another order; where values do not tell, the leaves around may; the others are reported with
    their candidates, never guessed. Exit status: 0 if it is loaded, or all is matched, 1 if not."""

    sides: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="MODEL|A FILE|B", help_behavior_hint=""),
    ] = ()
    """FILE.py:FUNCTION, a function that returns a model of PyTorch, Flax, Keras or Equinox, and the file
    that it was to be loaded from. Or two checkpoints of any kind; no dialect has to be known."""
    apart_from: Annotated[tuple[str, ...], shown_as("PATTERN ...")] = ()
    """Parameters of the model that are not to be the file's, such as 'head.*', and tensors of the file
    that the model is not to have."""
    json: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the result as JSON to this file."""


def main(argv: list[str], prog: str = "parity match") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(Match, argv, prog=prog)

    from parity.verifier.programs.build import is_function

    if len(arguments.sides) != 2:
        raise ConfigError(
            f"expected a model and a file, or two files, got {len(arguments.sides)};"
            f" {prog} --help explains"
        )
    a, b = arguments.sides
    if is_function(b):
        raise ConfigError(f"{b} is a model; give it first, and then the file")
    if is_function(a):
        return _loaded(arguments, a, b)
    return _matched(arguments, Path(a), Path(b))


def _loaded(arguments: Match, model: str, file: str) -> int:
    from parity.measure.shown import write_json
    from parity.verifier.loaded import judge
    from parity.verifier.programs.build import built_by
    from vit_config.waiting import Waiting

    with Waiting("building the model") as waiting:
        report = judge(built_by(model), file, apart_from=arguments.apart_from, on_stage=waiting.now)
    if arguments.json:
        write_json(arguments.json, {"model": model, "file": file, **report.to_dict()})
    say(*report.to_text().splitlines())
    return 0 if report.loaded else 1


def _matched(arguments: Match, a: Path, b: Path) -> int:
    from parity.measure.shown import write_json
    from parity.verifier.match import match
    from parity.verifier.match.leaves import read_leaves
    from parity.verifier.match.match_report import print_links, print_rest, to_dict
    from vit_config.screen import screen
    from vit_config.waiting import Waiting

    if arguments.apart_from:
        raise ConfigError(f"--apart-from goes with a model, FILE.py:FUNCTION, and {a} is a file")
    with Waiting("opening both files") as waiting:
        matched = match(read_leaves(a), read_leaves(b), on_stage=waiting.now)
    if arguments.json:
        write_json(arguments.json, {"a": str(a), "b": str(b), **to_dict(matched)})
    console = screen(140, highlight=False)
    print_links(matched, console)
    print_rest(matched, console)
    return 0 if matched.complete else 1
