"""``parity causes``: list the causes that `parity diff` can name."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated

import tyro

from parity.cli.support.command_line import parse
from parity.cli.support.reading import shown_as
from vit_config import ConfigError
from vit_config.terminal import say


@dataclass(frozen=True)
class Causes:
    """List the causes that `parity diff` can name: of a place where two programs part, and of a training
    step that two recordings take differently."""

    name: Annotated[
        str, tyro.conf.Positional, shown_as("[CAUSE]"), tyro.conf.arg(help_behavior_hint="")
    ] = ""
    """Show one cause with its example, or with the line to change."""


def main(argv: list[str], prog: str = "parity causes") -> int:
    """Run the command, which the user calls `prog`.

    Raises:
        ConfigError: no cause has that name.
    """
    args = parse(Causes, argv, prog=prog)

    from parity.verifier.causes import CAUSES

    ours, steps = {cause.rule: cause for cause in CAUSES}, step_causes()
    rule = args.name.replace(" ", "-")
    if not rule:
        _show("where two programs part", {name: each.meaning for name, each in ours.items()})
        _show("where two recordings of training part", steps)
        return 0
    if rule not in ours | steps:
        near = get_close_matches(rule, [*ours, *steps], 1)
        hint = f"did you mean {near[0]!r}?" if near else f"`{prog}` lists them all"
        raise ConfigError(f"no cause is called {args.name!r}; {hint}")
    if rule in ours:
        cause = ours[rule]
        say(f"{cause.name}: {cause.meaning}", f"  A  {cause.a}", f"  B  {cause.b}")
    if rule in steps:
        say(f"{rule}, of a recorded training step: {steps[rule]}")
    return 0


def step_causes() -> dict[str, str]:
    """Return the causes of training steps that differ, each with what to change."""
    from parity.verifier.recordings.steps.names import CAUSES

    return dict(CAUSES.values())


def _show(head: str, rows: dict[str, str]) -> None:
    from rich.markup import escape
    from rich.table import Column, Table

    from parity.measure.tables import show_table
    from vit_config.screen import screen

    table = Table(Column(head, no_wrap=True), Column("", overflow="fold"), box=None, pad_edge=False,
                  padding=(0, 2, 0, 0))  # fmt: skip
    for row in rows.items():
        table.add_row(*map(escape, row))
    show_table(table, screen(160, highlight=False))
    say("")
