"""The lists of `parity list` beside the presets: dialects, causes, deliberate mistakes."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from vit_config import ConfigError
from vit_config.terminal import say


def print_dialects() -> None:
    """Print every dialect that checkpoints are converted from and to."""
    from parity.porting.dialects import dialects

    rows = (
        (each.name, each.family, each.title, each.container if each.writes else "read only")
        for each in dialects()
    )
    _print(rows, ("dialect", "family", "of", "written as"), width=120, names=0)


def print_faults() -> None:
    """Print every deliberate mistake, with the twin or the command that it goes with."""
    from parity.faults import FAULTS
    from parity.faults.step_table import STEP_FAULTS
    from parity.faults.twin import FRAMEWORKS

    twins = [(name, FRAMEWORKS[each.twin], each.summary) for name, each in FAULTS.items()]
    _print([*twins, *((name, "check-steps", each.summary) for name, each in STEP_FAULTS.items())])


def print_causes(name: str, prog: str) -> None:
    """Print every cause that `parity diff` can name, or one with its example.

    Args:
        name: of the cause to show, with spaces or hyphens; empty for all.
        prog: the command that lists all, for the message.

    Raises:
        ConfigError: no cause has that name.
    """
    from parity.verifier.causes import CAUSES

    ours, steps = {cause.rule: cause for cause in CAUSES}, step_causes()
    rule = name.replace(" ", "-")
    if not rule:
        _print([(rule, each.meaning) for rule, each in ours.items()], ("where two programs part", ""))
        say("")
        _print(steps.items(), ("where two recordings of training part", ""))
        return
    if rule not in ours | steps:
        near = get_close_matches(rule, [*ours, *steps], 1)
        hint = f"did you mean {near[0]!r}?" if near else f"`{prog}` lists them all"
        raise ConfigError(f"no cause is called {name!r}; {hint}")
    if rule in ours:
        cause = ours[rule]
        say(f"{cause.name}: {cause.meaning}", f"  A  {cause.a}", f"  B  {cause.b}")
    if rule in steps:
        say(f"{rule}, of a recorded training step: {steps[rule]}")


def step_causes() -> dict[str, str]:
    """Return the causes of training steps that differ, each with what to change."""
    from parity.verifier.recordings.steps.names import CAUSES

    return dict(CAUSES.values())


def _print(
    rows: Iterable[tuple[str, ...]],
    headings: tuple[str, ...] = (),
    *,
    width: int = 160,
    names: int = 1,
) -> None:
    """Print a table; of its columns the first `names` stay on one line, the others are folded."""
    from rich.markup import escape
    from rich.table import Table

    from parity.measure.tables import show_table
    from vit_config.screen import screen

    cells = [[escape(cell) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(headings))
    for i in range(len(cells[0])):
        table.add_column(headings[i] if headings else "", no_wrap=i < names, overflow="fold")
    for row in cells:
        table.add_row(*row)
    show_table(table, screen(width, highlight=False))
