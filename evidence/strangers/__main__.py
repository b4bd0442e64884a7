"""Score `parity diff` on pairs of programs whose author had not seen it.

    python -m evidence.strangers [--only ID ...] [--share K/N] [--seconds N] [--kept FILE]
                              [--write docs/strangers.md]

Each pair of evidence/strangers/pairs is compared as the command would: is the verdict right, is the line
of the mistake printed, or one within three lines of it, and is every name that is given true of the
mistake? Needs keras, dm-haiku, equinox, lightning, accelerate and einops besides the development
packages; what cannot be imported is left out, and said. Exit status: 0 if every verdict is right and no
name wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import warnings
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evidence import ROOT
from vit_config.errors import first_line

PAIRS = ROOT / "evidence" / "strangers" / "pairs"
NEAR = 3
"""Lines between a printed line and the mistake's up to which the two count as near."""
HEAD = """# Pairs by somebody who had not seen the verifier

For those who ask whether `parity diff` was only ever tried on mistakes that its authors thought of. An
author who knew nothing of the verifier, its tests or its causes wrote {total} pairs in the styles of
2026: Keras 3, Haiku, Equinox, `torch.func`, `lax.scan` with caches that are carried along, chains and
masks of optax, Lightning modules, steps in the style of Hugging Face's Trainer. {clean} pairs do the
same; of the others, B has one mistake, whose line was marked before the comparison ran. `check.py` and
`mended.py` beside the pairs show, without the verifier, that the clean ones agree, that the others do
not, and that with the mistake mended or switched off all but one (`pos-resize-cubic`) agree.

- **line**: *yes* if the marked line is among those printed for B; *near* if one within {near} lines is,
  as where a call runs over several lines, or where a helper's own line is shown; *no* otherwise: a
  mistake made before anything is computed, in what loads the weights, has no line in the program.
- **cause**: the names that were given. Which are true of each mistake was decided by reading it, for
  half of the mistakes after names had been given; one that is not is marked as wrong. `-`: none was
  given, and the formulas are what is said.
- The engine was changed after the first run, for whole kinds, not for single pairs. In that run, {first}

"""
FIRST = """of the 95
  pairs then there, one clean pair was DIFFERENT (a table of rotations in complex64) and every mistake in
  a function that could be compared was caught, 27 of 51 on the line and 11 near it; 7 pairs could not be
  compared (Keras's lazy modules, random numbers drawn inside of a step), and some steps did not end."""


@dataclass(frozen=True)
class Outcome:
    """The verdict on a pair."""

    pair: dict[str, Any]
    verdict: str
    place: str = "-"
    names: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether the two do the same."""
        return self.pair["kind"].startswith("clean")

    @property
    def right(self) -> bool:
        """Whether the verdict is."""
        return self.verdict == ("EQUAL" if self.is_clean else "DIFFERENT")

    @property
    def wrong_names(self) -> tuple[str, ...]:
        """Names that are not true of the mistake."""
        return tuple(name for name in self.names if name not in self.pair.get("names", ()))


class SlowError(Exception):
    """A comparison did not end in time."""


def compared(pair: dict[str, Any], limit: int) -> Outcome:
    """Compare the two sides of a pair."""
    import parity
    from parity.verifier.report.compared import Compared

    a, b = (str(PAIRS / pair[side]) for side in "ab")
    started = time.perf_counter()
    signal.alarm(limit)
    try:
        comparison = parity.diff(a, b, gradients=pair["kind"].endswith("step"))
    except SlowError:
        return Outcome(pair, f"not ended in {limit} s")
    except Exception as error:
        said = first_line(error).replace(f"{PAIRS}/", "").replace(f"{pair['a']}: ", "")
        return Outcome(pair, f"{type(error).__name__}: {said[:100]}")
    finally:
        signal.alarm(0)
    assert isinstance(comparison, Compared)
    shown = {(Path(line.file).name, line.line) for place in comparison.places for line in place.b.lines}
    marked = {(f, int(n)) for f, _, n in (each.partition(":") for each in pair.get("wrong_lines", ()))}
    near = any(f == g and abs(i - j) <= NEAR for f, i in shown for g, j in marked)
    place = "yes" if shown & marked else "near" if near else "no"
    names = tuple(dict.fromkeys(each.cause for each in comparison.places if each.cause))
    return Outcome(pair, comparison.verdict, place, names, time.perf_counter() - started)


def scores(outcomes: list[Outcome]) -> list[str]:
    """Return the rows of the table of counts."""
    clean = [each for each in outcomes if each.is_clean]
    rows = [f"| clean pairs EQUAL | {sum(each.right for each in clean)} of {len(clean)} |"]
    for kind, said in (("fault", "mistakes in functions"), ("step", "mistakes in training steps")):
        those = [each for each in outcomes if each.pair["kind"] == kind]
        caught = [each for each in those if each.right]
        exact = sum(each.place == "yes" for each in caught)
        beside = sum(each.place == "near" for each in caught)
        wrong = sum(bool(each.wrong_names) for each in caught)
        named = sum(bool(each.names) and not each.wrong_names for each in caught)
        rows += [
            f"| {said}: caught | {len(caught)} of {len(those)} |",
            f"| on the line, near it | {exact}, {beside} |",
            f"| named, named wrongly | {named}, {wrong} |",
        ]
    return rows


def row(each: Outcome) -> str:
    """Return the row of a pair on the page."""
    pair = each.pair
    cells = [pair["id"], pair["style"], pair["wrong"] or "nothing", each.verdict, "", ""]
    if not each.is_clean:
        said = ", ".join(each.names) or "-"
        said += f" (wrong: {', '.join(each.wrong_names)})" if each.wrong_names else ""
        cells[4:] = each.place, said
    return "| " + " | ".join(cells) + " |"


def versions() -> str:
    """Return the date, and the versions of what the pairs use."""
    names = "torch", "jax", "flax", "optax", "keras", "dm-haiku", "equinox", "lightning", "transformers"
    return f"{date.today()}, " + ", ".join(f"{name} {version(name)}" for name in names)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="these pairs alone")
    parser.add_argument("--share", metavar="K/N", help="one N-th of the pairs")
    parser.add_argument("--seconds", type=int, default=300, help="most seconds for one pair")
    parser.add_argument(
        "--kept", type=Path, metavar="FILE", help="outcomes that stand, and are added to"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page")
    options = parser.parse_args()
    sys.path.insert(0, str(PAIRS))
    os.environ.setdefault("KERAS_BACKEND", "jax")
    warnings.simplefilter("ignore")

    from tests.support.share import parse

    if find_spec("timm"):
        from parity.porting.reading.libraries.peers import import_timm

        import_timm()  # declares operators without which torchvision, if it is there, may not load

    def stop(*_: object) -> None:
        raise SlowError

    signal.signal(signal.SIGALRM, stop)
    pairs = {each["id"]: each for each in json.loads((PAIRS / "pairs.json").read_text())}
    chosen = options.only or [*pairs]
    chosen = parse(options.share).of(chosen) if options.share else chosen
    outcomes = []
    file: Path | None = options.kept
    saved: dict[str, Any] = {}
    if file is not None and file.is_file():
        saved = {each["id"]: each for each in map(json.loads, file.read_text().splitlines())}
    for name in chosen:
        if name in saved:
            each = Outcome(pairs[name], **saved[name]["said"])
        else:
            each = compared(pairs[name], options.seconds)
        if file is not None and name not in saved:
            with file.open("a") as stream:
                said = {field: value for field, value in vars(each).items() if field != "pair"}
                stream.write(json.dumps({"id": name, "said": said}) + "\n")
        outcomes.append(each)
        good = each.right and (each.is_clean or not each.wrong_names)
        said = ", ".join(each.names) or "-"
        print(f"{'ok  ' if good else 'MISS'} {name:28} {each.verdict} {each.place} {said}", flush=True)
    print("\n".join(["", *scores(outcomes)]))
    if options.write is not None:
        clean = sum(each.is_clean for each in outcomes)
        head = HEAD.format(total=len(outcomes), clean=clean, near=NEAR, first=FIRST)
        counts = ["| | |", "|---|---|", *scores(outcomes), ""]
        table = [
            "| pair | style of B | what is wrong | verdict | line | cause |",
            "|---|---|---|---|---|---|",
        ]
        command = f"`python -m evidence.strangers --seconds {options.seconds} --write docs/strangers.md`"
        said = [f"{command}, {versions()}:", ""]
        options.write.write_text(head + "\n".join([*said, *counts, *table, *map(row, outcomes)]) + "\n")
    good = all(each.right and (each.is_clean or not each.wrong_names) for each in outcomes)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
