"""Other people's models with one thing changed: is it caught, on its line, and named rightly?

    python -m evidence.mutants [--models NAME ...] [--count N] [--write docs/operation_mutants.md]

Every operator, number, axis, flag, function, argument and slice in the code that a model runs is
changed once, and what its modules hold (evidence/mutants). Outcomes are kept in a file, so that a
run that was stopped goes on: `--again` judges anew what was missed or named doubtfully, `--afresh` all.
Exit status: 0 if all that change a result are caught, 95 % are placed and no name is doubtful; 1 if not.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections.abc import Iterable
from datetime import date
from functools import partial
from pathlib import Path

from evidence import ROOT

KEPT = ROOT / "build" / "operation_mutants.jsonl"
HEAD = """# Other people's code with one thing changed

For those who want to know how often `parity diff` finds the line. One operator, number, axis, flag,
function, argument or slice in the code that a model runs is changed at a time; a term, factor, call or
keyword is left out; or a number that a module holds (an epsilon, a stride) is another one. The models
are those of timm and transformers, and plain functions of JAX, each small and with drawn weights.

- **tried**: mutants that run and whose outputs differ in float64, told without the verifier.
- **caught**: DIFFERENT is said. **placed**: a line that is printed for B is one of the changed statement
  (for A too, where something was left out). **first**: it is the first one.
- **named**: a cause is given. **doubt**: a name that a change of this kind cannot have been; each is
  listed.

Whether a name can be true is told by the kind of the change. Of 40 names drawn by chance each was also
read beside its change: all were true of the first place.
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=[], metavar="NAME", help="these alone")
    parser.add_argument("--count", type=int, default=40, help="mutants of a model")
    parser.add_argument("--kept", type=Path, default=KEPT, metavar="FILE", help="outcomes, kept")
    parser.add_argument("--again", action="store_true", help="judge anew what was missed or doubtful")
    parser.add_argument("--afresh", action="store_true", help="judge all anew")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="then start no more")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page")
    parser.add_argument("--texts", action="store_true", help="print what was said of each")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # a copy of a module registers its models a second time

    import torch

    from evidence.mutants.changes import mutants
    from evidence.mutants.judging import Outcome, outcome
    from evidence.mutants.saved import Outcomes
    from evidence.mutants.subjects import MODELS
    from parity.porting.reading.libraries.peers import import_timm
    from parity.verifier.programs.sides import record

    torch.set_num_threads(1)  # the models are small
    import_timm()  # before transformers looks for torchvision
    saved = Outcomes(options.kept, afresh=options.afresh, again=options.again)
    until = time.monotonic() + 60 * options.minutes
    outcomes: list[Outcome] = []
    for name in options.models or MODELS:
        model, inputs, modules = MODELS[name]()
        original = record((model, inputs), "A")
        choices = list(mutants(model, original, modules))
        random.Random(name).shuffle(choices)
        tried = 0
        for mutant in choices:
            if tried >= options.count:
                break
            each = saved.get(name, mutant.key)
            if each is None and time.monotonic() < until:
                judge = partial(outcome, name, model, inputs, original, mutant)
                each = saved.outcome(name, mutant.key, judge)
            if each is None:
                continue
            outcomes.append(each)
            tried += each.state == "tried"
            if each.state == "tried" and (options.texts or each.is_missed):
                print(said(each), flush=True)
        print(row(name, [each for each in outcomes if each.model == name]), flush=True)
    print("\n".join(table("model", outcomes)))
    if options.write is not None:
        options.write.write_text("\n".join(page(outcomes, saved.engine)) + "\n")
    total = [each for each in outcomes if each.state == "tried"]
    good = all(each.caught and not each.doubtful for each in total)
    return 0 if good and sum(each.placed for each in total) >= 0.95 * len(total) else 1


def said(each) -> str:
    """One outcome, with all that was printed."""
    if not each.caught:
        verdict = "NOT CAUGHT"
    else:
        verdict = "NAMED?" if each.doubtful else "placed" if each.placed else "ELSEWHERE"
    return f"{verdict} {each.model}, {each.place}: {each.kind}: {each.what}\n1. {each.said[-1]}\n"


COLUMNS = ("tried", "caught", "placed", "first", "named", "doubt", "CPU s each")


def row(name: str, outcomes: Iterable) -> str:
    """The score of some outcomes as a row of a table."""
    some = [each for each in outcomes if each.state == "tried"]
    counts = [len(some), *(sum(bool(getattr(each, column)) for each in some)
              for column in ("caught", "placed", "first", "named", "doubtful"))]  # fmt: skip
    seconds = sum(each.seconds for each in some) / max(len(some), 1)
    return f"| {name} | {' | '.join(map(str, counts))} | {seconds:.1f} |"


def table(field: str, outcomes: list) -> list[str]:
    """The scores by a field of the outcomes, and of all."""
    values = dict.fromkeys(getattr(each, field) for each in outcomes)
    rows = [row(value, [e for e in outcomes if getattr(e, field) == value]) for value in values]
    head = [f"| {field} | {' | '.join(COLUMNS)} |", "|---|" + "--:|" * len(COLUMNS)]
    return [*head, *rows, row("**all**", outcomes)]


def page(outcomes: list, engine: str) -> list[str]:
    """The page."""
    tried = [each for each in outcomes if each.state == "tried"]
    total = len(tried)
    lines = [
        HEAD,
        f"`python -m evidence.mutants --write docs/operation_mutants.md`, {date.today()}:",
        "",
    ]
    lines += ["| | | |", "|---|---|---|"]
    for name in ("caught", "placed", "first", "named", "doubtful"):
        n = sum(bool(getattr(each, name)) for each in tried)
        lines.append(f"| {name} | {n} of {total} | {100 * n / max(total, 1):.1f} % |")
    left = {state: sum(each.state == state for each in outcomes) for state in LEFT_OUT}
    said = [f"{left[state]} {words}" for state, words in LEFT_OUT.items()]
    lines += ["", f"Left out: {'; '.join(said)}."]
    earlier = sum(each.engine != engine for each in tried)
    if earlier:
        was = f"{earlier} of {total} were judged by earlier versions of the search"
        lines += ["", f"{was} and stand as they were; all that were missed then were judged anew."]
    lines += ["", "## By model", "", *table("model", outcomes), ""]
    lines += ["## By what was changed", "", *table("kind", outcomes), ""]
    missed = [each for each in tried if each.is_missed]
    if missed:
        lines += ["## What was missed", ""]
        lines += ["| model | place | change | what was said |", "|---|---|---|---|"]
    for each in missed:
        text = ", ".join(each.said[:-1][:4]) or "nothing"
        text += f" ({', '.join(each.named)})" if each.named else ""
        what = f"{each.kind}: `{each.what.replace('|', '/')}`"
        lines.append(f"| {each.model} | {each.place} | {what} | {text} |")
    return lines


LEFT_OUT = {
    "unable": "mutants that cannot run",
    "unchanged": "that change no output",
    "small": "that change it by less than 1e-9, which is EQUAL by definition",
    "type": "that compute something in another number type, which is not compared",
}
"""States of outcomes that are no mutants."""


if __name__ == "__main__":
    sys.exit(main())
