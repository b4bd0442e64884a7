"""The mutation score in words: on the terminal and as a page."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from rich.table import Table

from evidence.faults import FAULTS, STEP_FAULTS
from evidence.mutation_score.scores import Clean, Result
from parity.faults.twin import FRAMEWORKS, TWINS
from parity.twins.check import environment

COLUMNS = [f"{FRAMEWORKS[twin]}, {scope}" for twin in TWINS for scope in ("one block", "all")]

WORDS = """\
Each deliberate fault of `parity/faults` and `evidence/faults` is put into one twin; the other is the
reference. *Caught*:
`parity diff` says that the two differ. *Located*: in the module where the fault is, or on its line; of
what is left out, which has no line, in the module that calls it or the one in front; of a training
step, in the stage. *Named*: it gives the fault's cause first, and none for a fault that
has none. `yes` is all three. Faults of the model as a whole and of training stand under *all*.

Causes of the forward and backward pass come from the operations that part
([operations.md](operations.md)): each was verified by that one exchange, so it is true of the two
formulas. Which of them is *right* was judged by what the mistake is: that a scale is one too many, not
that attention is at fault, for the formulas and lines say that. Where two names are accepted (`or`),
both are true of the mistake, and it depends on how a framework writes the computation which is found
first. `none` counts as right where no single exchange explains the fault, or the fault was made up.
For `number_of_heads`, `positions_before_the_class_token` and `pooled_prefix` it is a gap: people make
these mistakes, and no exchange is known that would show what they are.
`tanh_gelu_in_float32` is another function in float32 alone, and is scored there (`--dtype float32`); its
cause is named in PyTorch. `fast_variance` is the same in exact arithmetic and loses digits: it has its
positions moved by 1000, and the line and the size of the difference are all that is said. The factor
of `float32_activation` is a constant of the derivative, which JAX rounds to float32. Steps of training
are scored in float64 alone, by the rules of `parity/verifier/recordings/steps`."""


def line(result: Result) -> str:
    """One result on one line."""
    said = (
        f"in {result.place or '(model)'}" if result.caught else "not seen" if result.unseen else "MISSED"
    )
    wrong = "" if result.located or result.unseen else " (elsewhere)"
    wanted = f" (expected {result.expected or 'none'})" if not result.is_named else ""
    return (
        f"{'ok  ' if result.passed else 'FAIL'} {result.label:33}{FRAMEWORKS[result.twin]:8}"
        f" {result.scope:11}{said}{wrong}: {result.named or 'no known cause'}{wanted},"
        f" {result.seconds:.1f} s"
    )


def summary(results: Sequence[Result], pairs: Sequence[Clean]) -> str:
    """The score."""
    seen = [each for each in results if not each.unseen]
    caught = sum(each.caught for each in seen)
    located = sum(each.located for each in seen)
    named = sum(each.caught and each.is_named for each in seen)
    equal = sum(each.raised is None for each in pairs)
    return (
        f"{caught} of {len(seen)} caught, {located} located, {named} named rightly;"
        f" {equal} of {len(pairs)} pairs without a fault equal"
    )


def table(results: Sequence[Result]) -> Table:
    """One row for each fault."""
    rows = Table("fault", "cause", *COLUMNS)
    for name, row in _rows(results).items():
        rows.add_row(name, *row)
    return rows


def _rows(results: Sequence[Result]) -> dict[str, list[str]]:
    """Return for each fault its cause, and its results by twin and scope."""
    rows: dict[str, list[str]] = {}
    for each in results:
        cause = "cannot be seen" if each.unseen else each.expected or "none"
        row = rows.setdefault(each.label, [cause, "", "", "", ""])
        row[1 + 2 * TWINS.index(each.twin) + (each.scope != "one block")] = _marks(each)
    return rows


def _marks(each: Result) -> str:
    if each.unseen:
        return "SEEN" if each.caught else "not seen"
    if each.passed:
        return "yes"
    words = (
        "caught" if each.caught else "MISSED",
        "located" if each.located else f"PLACED IN {each.place or '(model)'}",
        "named" if each.is_named else f"NAMED {each.named or 'nothing'}",
    )
    return ", ".join(words)


def page(results: Sequence[Result], pairs: Sequence[Clean], seconds: float, command: str) -> str:
    """The page docs/mutation_score.md."""
    versions = ", ".join(f"{name} {value}" for name, value in environment().items())
    unseen = {name: fault.unseen for name, fault in FAULTS.items() if fault.unseen}
    raised = [f"{each.name} {each.dtype}: {each.raised}" for each in pairs if each.raised]
    return "\n\n".join(
        (
            "# The mutation score of the verifier",
            "For those who ask what `parity diff` finds, and what it misses.",
            f"Generated by `{command}` on {datetime.date.today()}, in {seconds:.0f} s; {versions}.",
            f"{summary(results, pairs)}.",
            WORDS,
            "\n".join(
                [
                    f"| fault | cause | {' | '.join(COLUMNS)} |",
                    "|---|---|---|---|---|---|",
                    *(f"| `{name}` | {' | '.join(row)} |" for name, row in _rows(results).items()),
                ]
            ),
            "## The faults in words",
            _list({name: fault.summary for name, fault in (*FAULTS.items(), *STEP_FAULTS.items())}),
            "## What cannot be seen",
            _list(unseen),
            "## Pairs without a fault",
            ", ".join(f"{each.name} {each.dtype}" for each in pairs) + ".",
            f"Raised: {'; '.join(raised) or 'nothing'}.",
        )
    ) + "\n"  # fmt: skip


def _list(texts: Mapping[str, str | None]) -> str:
    return "\n".join(f"- `{name}`: {text}." for name, text in texts.items())
