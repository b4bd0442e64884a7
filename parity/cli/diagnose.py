"""``parity diagnose``: why two models differ."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rich.console import Console

from parity.cli.support.command_line import parse
from parity.cli.support.comparing import Comparing
from parity.verifier.diagnose.diagnosis import diagnose
from parity.verifier.diagnose.report import print_diagnosis, to_dict
from vit_config.files.atomic import write_atomically


@dataclass(frozen=True)
class Arguments(Comparing):
    """Find the first difference as `parity diff` does, and say why: what both models computed there is
    computed again from the captured tensors, under each hypothesis of a catalogue, until one reproduces
    both. Exit status: 0 equal, 1 different, 2 bad input.
    """


def main(argv: list[str], prog: str = "parity diagnose") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(Arguments, argv, prog=prog)
    diagnosis = diagnose(arguments.run())
    print_diagnosis(diagnosis, Console(width=None if Console().is_terminal else 110))
    if arguments.json:
        write_atomically(arguments.json, (json.dumps(to_dict(diagnosis), indent=2) + "\n").encode())
    return 0 if diagnosis.equal else 1
