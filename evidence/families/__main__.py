"""Ten families beyond ViT: models of timm and transformers, ports in JAX, and mistakes in these.

    python -m evidence.families [--only NAME ...] [--share K/N] [--count 20] [--again] [--write FILE]

Each port of evidence/families is compared with its original by `parity diff`, and with
`--backward` its gradients, too: EQUAL must be said. Then one operator, number, flag or pair of
arguments of the port is changed at a time, and it is counted how many of the changes that change an
output are caught, and on which line. Outcomes are kept in a file, so that a run that was stopped goes
on: `--again` judges anew what was missed, `--afresh` all.
Exit status: 0 if no clean pair raises an alarm, all mutants are caught, 95 % are placed and no name is
doubtful; 1 if not.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path

import numpy as np
import torch

from evidence import ROOT
from evidence.families import NAMES, family
from evidence.mutants.changes import Lines, Mutant, mutants
from evidence.mutants.judging import (
    ROUNDING,
    SMALL,
    Outcome,
    distance,
    judged,
)
from evidence.mutants.saved import Outcomes
from parity.verifier.compare import compare
from parity.verifier.locate import compare_programs
from parity.verifier.programs.program import Program
from parity.verifier.programs.sides import record
from parity.verifier.search.meeting import Index
from parity.verifier.search.rounding import align
from tests.support.share import parse
from vit_config.errors import first_line

KEPT = ROOT / "build" / "families.jsonl"


@dataclass
class Family:
    """The results of one family."""

    name: str
    style: str
    """The original of the port, and the style of the port."""
    alarms: list[str] = field(default_factory=list)
    error: float = 0.0
    """The largest of the clean pair's outputs."""
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def tried(self) -> list[Outcome]:
        """The mutants that count."""
        return [each for each in self.outcomes if each.state == "tried"]

    @property
    def missed(self) -> list[str]:
        """Those that were not caught, not placed, or named doubtfully."""
        sentences = []
        for each in self.tried:
            what = "not caught" if not each.caught else "not placed" if not each.placed else ""
            what = what or f"called {', '.join(each.doubtful)}"
            if each.is_missed:
                lines = ", ".join(each.said[:-1][:6]) or "nothing"
                sentences.append(f"{each.place} {each.what}: {what}; said {lines}")
        return sentences

    @property
    def small(self) -> list[str]:
        """Changes that move an output by less than what counts as equal."""
        small = [each for each in self.outcomes if each.state == "small"]
        return [f"{each.place} {each.what}: {each.change:.0e}" for each in small]


@dataclass
class Pair:
    """An original and its port, recorded."""

    name: str
    model: torch.nn.Module
    original: Program
    port: Program


def pair_of(name: str) -> Pair:
    """Build and record both sides of a family."""
    module = family(name)
    model, inputs = module.original()
    original = record((model, inputs), "A")
    return Pair(name, model, original, record(module.port(model), "B"))


def clean(pair: Pair, *, backward: bool) -> tuple[list[str], float]:
    """Return the alarms about a pair that is equal, and the largest error of an output."""
    forward = compare_programs(pair.original, pair.port)
    alarms = (
        [] if forward.verdict == "EQUAL" and not forward.notes else [f"forward: {forward.to_text()}"]
    )
    if backward:
        module = family(pair.name)
        model, inputs = module.original()
        whole = compare((model, inputs), module.port(model))
        if not whole.equal or whole.no_backward:
            alarms.append(f"backward: {whole.to_text()}")
    return alarms, forward.error


def outcomes(pair: Pair, count: int, saved: Outcomes | None = None, seed: int = 0) -> Iterator[Outcome]:
    """What becomes of mutants of a port, drawn at random from all single changes, until `count` of them
    change an output; what was kept is not tried again.

    Those that change it by less than what counts as equal are among them, and do not count.
    """
    module = family(pair.name)
    choices = [*mutants(module.port, pair.port, [module.__name__])]
    random.Random(seed).shuffle(choices)
    for mutant in choices:
        judge = partial(outcome, pair, mutant)
        each = judge() if saved is None else saved.outcome(pair.name, mutant.key, judge)
        yield each
        count -= each.state == "tried"
        if not count:
            return


def outcome(pair: Pair, mutant: Mutant) -> Outcome:
    """Judge one mutant."""
    about = (pair.name, mutant.kind, mutant.place, mutant.what, mutant.key)
    module = family(pair.name)
    started = time.process_time()
    try:
        other = record(mutant.apply(module.port)(pair.model), "B")
    except Exception:  # a mutant that cannot run is no mutant
        return Outcome(*about, "unable")
    change = distance(outputs(pair.port), outputs(other))
    if change <= SMALL:
        return Outcome(*about, "unchanged" if change <= ROUNDING else "small", change)
    if mutant.is_omission:
        mutant = replace(mutant, lines=mutant.lines | counterparts(pair, mutant))
    comparison = compare_programs(pair.original, other)
    seconds = time.process_time() - started
    return judged(Outcome(*about, "tried", change, seconds=seconds), comparison, mutant)


def outputs(program: Program) -> list[np.ndarray]:
    """The values that a program returns."""
    wanted = [index for _, index in program.outputs]
    values = program.values(wanted)
    return [np.asarray(values[index]) for index in wanted]


def counterparts(pair: Pair, mutant: Mutant) -> Lines:
    """The original's lines that compute what a statement of the port computed before it was changed."""
    original, port, _ = align(pair.original, pair.port)
    index = Index(original)
    lines = set()
    for op in port.operations:
        if op.source is not None and (op.source.file, op.source.line) in mutant.lines:
            partners = [each for each in index.meets(op) if each.is_layout == op.is_layout]
            lines |= {(p.source.file, p.source.line) for p in partners if p.source is not None}
    return frozenset(lines)


def score(name: str, count: int, saved: Outcomes | None = None, *, backward: bool = False) -> Family:
    """All that is said of a family."""
    started = time.process_time()
    summary = first_line(family(name).__doc__)
    pair = pair_of(name)
    result = Family(name, summary.rstrip("."), *clean(pair, backward=backward))
    result.seconds = time.process_time() - started
    for each in outcomes(pair, count, saved):
        result.outcomes.append(each)
        result.seconds += each.seconds
    return result


PAGE = """# Families beyond ViT

For those whose model is no Vision Transformer. Ten families from timm and transformers, each a tiny
model of the library's own class with drawn weights, against a port in JAX as one would write it by hand
(`evidence/families`): channels last, packed and split projections, scan, vmap, plain functions,
Linen and NNX.

- **clean**: what `parity diff` says of the pair as it is, with the largest relative error of an output
  in float64. An alarm would be a false one.
- **mutants**: {count} changes of each port's code, drawn at random from all single changes (an operator,
  a number or a flag, two arguments exchanged, a term, a factor or a call left out) that change an
  output by more than {equal:.0e}, the limit of EQUAL. Whether one does is told from the port's outputs
  before and after it, not by the search. Smaller changes, down to {rounding:.0e}, are listed below.
- **caught**: DIFFERENT is said. **placed**: a line that is printed for B is one of the changed
  statement; where something was left out, a line of A that computes what the statement did counts too.
  **first**: it is the first line.
- **named**: a cause is given. **doubtful**: one that the change cannot have been.

`python -m evidence.families --count {count} --write docs/families.md` ({today}, {seconds} CPU seconds):

| family | clean | error | mutants | caught | placed | first | named | doubtful |
|---|---|---|---|---|---|---|---|---|
{rows}
{earlier}
`--backward` compares the gradients, too. So far it was asked about three: ConvNeXt, ResNet and Mixer are
equal, with every gradient.

ResNet is compared in evaluation. A step of training through a batch norm is a test of its own
(`tests/parity/verifier/programs/test_batch_norm.py`): loss, gradients and running mean are equal, and
the running variance is not, because torch keeps that of a sample, over n - 1, and Flax that over n.

## The ports

{ports}

## What was missed

{missed}

What is known of the causes:

- Of the cosines of a rotary table A holds both halves, the port one (gemma:55): a value of A's that
  repeats what B has once is not tried in its place, so the product of queries and keys is the place.
- Where nothing is left of a statement but a number of Python's, and the original made its table in the
  constructor (swin:39), no line of the statement runs on either side.
- A term that is left out before others are added (t5:89) is reported where the sum is read.

## Too small to be a difference

Not counted: EQUAL is said up to a relative error of {equal:.0e}.

{small}
"""


def page_of(families: list[Family], count: int, engine: str) -> str:
    """The page, of the families so far."""
    tried = [outcome for each in families for outcome in each.tried]
    old = sum(outcome.engine != engine for outcome in tried)
    said = (
        f"{old} of {len(tried)} mutants were judged by earlier versions of the search and stand as they"
    )
    earlier = f"\n{said} were; all that were missed then were judged anew.\n" if old else ""
    missed = [f"- {each.name}: {said}" for each in families for said in (*each.alarms, *each.missed)]
    small = [f"- {said}" for each in families for said in each.small]
    return PAGE.format(
        count=count, earlier=earlier, rounding=ROUNDING, equal=SMALL,
        today=date.today(), seconds=round(sum(each.seconds for each in families)),
        rows="\n".join(row(each) for each in [*families, total_of(families)]),
        ports="\n".join(f"- **{each.name}**: {each.style}." for each in families),
        missed="\n".join(missed) or "Nothing.", small="\n".join(small) or "None.")  # fmt: skip


def row(each: Family) -> str:
    """The table's row."""
    clean_said = "EQUAL" if not each.alarms else f"**{len(each.alarms)} alarms**"
    fields = ("caught", "placed", "first", "named", "doubtful")
    numbers = [len(each.tried), *(sum(bool(getattr(o, name)) for o in each.tried) for name in fields)]
    return f"| {each.name} | {clean_said} | {each.error:.1e} | {' | '.join(map(str, numbers))} |"


def total_of(families: list[Family]) -> Family:
    """The sum."""
    alarms = [alarm for each in families for alarm in each.alarms]
    everything = [outcome for each in families for outcome in each.outcomes]
    return Family("all", "", alarms, max(each.error for each in families), everything)


def main() -> int:
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--only", nargs="+", default=[], choices=NAMES, metavar="NAME")
    parser.add_argument("--share", metavar="K/N", help="one N-th of the families")
    parser.add_argument("--count", type=int, default=20, help="mutants of a family")
    parser.add_argument("--backward", action="store_true", help="the gradients of the clean pairs, too")
    parser.add_argument("--kept", type=Path, default=KEPT, metavar="FILE", help="outcomes, kept")
    parser.add_argument("--again", action="store_true", help="judge anew what was missed or doubtful")
    parser.add_argument("--afresh", action="store_true", help="judge all anew")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the models are small
    warnings.simplefilter("ignore")
    names = options.only or list(NAMES)
    if options.share:
        names = parse(options.share).of(names)
    saved = Outcomes(options.kept, afresh=options.afresh, again=options.again)
    families = []
    for name in names:
        families.append(score(name, options.count, saved, backward=options.backward))
        print(row(families[-1]), f"{families[-1].seconds:.0f} s", flush=True)
        for each in (*families[-1].alarms, *families[-1].missed):
            print("   ", each, flush=True)
        if options.write is not None:
            options.write.write_text(page_of(families, options.count, saved.engine))
    everything = total_of(families)
    print(row(everything))
    tried = everything.tried
    placed = sum(each.placed for each in tried)
    good = all(each.caught and not each.doubtful for each in tried) and placed >= 0.95 * len(tried)
    return 0 if good and not everything.alarms else 1


if __name__ == "__main__":
    sys.exit(main())
