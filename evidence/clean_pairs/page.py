"""What came of the pairs, as tables and lists; a section of the page for each mode."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

from evidence.clean_pairs.draw import Pair
from evidence.clean_pairs.judge import Result
from evidence.clean_pairs.mistakes import FAULTS
from evidence.clean_pairs.styles import styles
from evidence.clean_pairs.weights import KINDS

FINE = ("EQUAL", "EQUAL, some left out", "EQUAL, no gradients", "INCOMPLETE", "UNCERTIFIED")
ALARMS = ("DIFFERENT", "ERROR", "NO END", "WRONG PAIR")
LOST = ("deep", "saturated")
TITLES = {"clean": "Pairs that must be equal", "faults": "Mistakes in the same programs",
          "published": "Published sizes", "published faults": "Mistakes at published sizes"}  # fmt: skip
INTRO = """# Pairs that are equal

For those who want to know how often the verifier raises a false alarm, and what it misses.

One Vision Transformer, and the towers of CLIP, SigLIP and DINOv3, are written in {count} styles. Two of
them with the same weights are a pair, compared forward and backward. Every style meets every kind of
weights and every class of size that it can have. Each pair is first shown to be right without the
verifier (`evidence/clean_pairs/outcome.py`): its outputs and all gradients, by timm's names, are
computed in float64 by the frameworks' own differentiation and are the same to 1e-11 of each array's
largest number (1e-4 where a library computes a step in float32 whatever it is given). A mistake counts
only if it moves one of these by 1e-9, where a side computes in float32 beside B without the mistake.
`python -m evidence.clean_pairs --only 'NAME'` repeats one pair and prints the whole report.
Haiku and Equinox are tried where they are installed.
"""


def is_alarm(result: Result) -> bool:
    """Whether a pair that must be equal is said not to be, or could not be compared; a deep pair with
    saturated softmax loses the digits of its gradients by itself, and is not asked about."""
    lost = result.verdict == "WRONG PAIR" and (result.pair.size_name, result.pair.kind) == LOST
    return result.verdict in ALARMS and not lost


def is_missed(result: Result) -> bool:
    """Whether a visible mistake is called EQUAL, or was not judged."""
    return result.verdict in ("EQUAL", "ERROR", "NO END", "WRONG PAIR")


def name_of(result: Result) -> str:
    """What the product called a mistake; empty if nothing."""
    return result.cause or ("told in a sentence" if result.named else "")


def line(result: Result, memory: float) -> str:
    """One result on one line."""
    marks = ""
    if result.pair.wrong.name:
        marks = f" {'placed' if result.placed else 'ELSEWHERE'}, {name_of(result) or 'no name'};"
        marks = "" if result.verdict == "NOT VISIBLE" else marks
    cost = f"{result.seconds:5.1f} s {memory:4.1f} GiB"
    return f"{result.state:20} {cost} {result.pair.name};{marks} {result.why[:300]}"


def _rows(results: Sequence[Result], key: Callable[[Pair], str], head: str) -> str:
    """A table of verdicts by a property of the pairs."""
    order = list(dict.fromkeys(key(r.pair) for r in results))
    states = [s for s in (*FINE, *ALARMS) if any(r.state == s for r in results)]
    rows = [f"| {head} | pairs | {' | '.join(states)} |", "|---" * (2 + len(states)) + "|"]
    for each in [*sorted(order), "all"]:
        counts = Counter(r.state for r in results if each in ("all", key(r.pair)))
        numbers = " | ".join(str(counts[s]) for s in states)
        rows.append(f"| {each} | {counts.total()} | {numbers} |")
    return "\n".join(rows)


def _listed(results: Sequence[Result]) -> str:
    lines = (f"- `{r.pair.name}`: {r.state}; {_plain(r.why[:240])}" for r in results)
    return "\n".join(lines) or "None."


def _plain(text: str) -> str:
    return re.sub(r"([<>*_|`])", r"\\\1", text)


def _made(command: str, results: Sequence[Result]) -> str:
    names = ("torch", "jax", "flax", "timm", "transformers")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    seconds = sum(each.seconds for each in results)
    return f"`{command}` ({date.today()}, {seconds:.0f} CPU seconds; {versions}):"


def clean_section(results: Sequence[Result], command: str) -> str:
    """Tables, alarms, and what was not compared."""
    own = [r for r in results if r.verdict == "WRONG PAIR"]
    alarms = [r for r in results if is_alarm(r) and r not in own]
    partly = [r for r in results if not is_alarm(r) and r.state != "EQUAL"]
    kinds = "\n".join(f"- {name}: {text}" for name, (text, *_) in KINDS.items())
    return "\n\n".join([
        _made(command, results),
        f"{len(results)} pairs, {len(alarms)} alarms; {len(own)} are by themselves further apart than"
        " 1e-11.",
        _rows(results, lambda p: p.kind, "weights"),
        _rows(results, lambda p: styles()[p.b].group, "style of B"),
        _rows(results, lambda p: p.size_name, "size"), _rows(results, lambda p: p.dtype, "type"),
        f"Kinds of weights:\n\n{kinds}", f"Alarms:\n\n{_listed(alarms)}",
        f"Further apart by themselves (WRONG PAIR), so that nothing was asked:\n\n{_listed(own)}",
        f"Equal in what was compared, but not all of it was:\n\n{_listed(partly)}",
    ])  # fmt: skip


def fault_section(results: Sequence[Result], command: str) -> str:
    """What was caught, placed and named, by mistake."""
    seen = [r for r in results if r.verdict != "NOT VISIBLE"]
    rows = ["| mistake | pairs | caught | placed | named | names given |", "|---|---|---|---|---|---|"]
    for name in [*FAULTS, "all"]:
        own = [r for r in seen if name in ("all", r.pair.wrong.name)]
        if not own:
            continue
        given = Counter(name_of(r) or "none" for r in own if r.verdict == "DIFFERENT")
        said = "" if name == "all" else ", ".join(f"{n} {c}" for c, n in given.most_common())
        text = f"{FAULTS[name].summary} (`{name}`)" if name in FAULTS else "all"
        numbers = [len(own), sum(not is_missed(r) for r in own), sum(r.placed for r in own),
                   sum(r.named for r in own)]  # fmt: skip
        rows.append(f"| {text} | {' | '.join(map(str, numbers))} | {said} |")
    words = (
        f"{len(results)} pairs with one mistake in B, {len(seen)} of which are visible without the"
        " verifier. *Caught*: the verdict is not EQUAL. *Placed*: a line that is shown of B is one where"
        " the mistake is made. *Named*: the first name is one of those that are right;"
        " of a parameter that holds another's numbers, the sentence tells which."
    )
    missed = [r for r in seen if is_missed(r)]
    elsewhere = [r for r in seen if not is_missed(r) and not r.placed]
    return "\n\n".join([
        _made(command, results), words, "\n".join(rows), f"Missed:\n\n{_listed(missed)}",
        f"Shown elsewhere:\n\n{_listed(elsewhere)}",
    ])  # fmt: skip


def published_section(results: Sequence[tuple[Result, float]], command: str) -> str:
    """A row for each pair."""
    rows = [
        "| A | B | weights | verdict | CPU seconds | GiB | apart by itself |",
        "|---|---|---|---|---|---|---|",
    ]
    for r, memory in results:
        p = r.pair
        rows.append(
            f"| {p.size_name}, {p.a} | {p.b} | {p.kind} | {r.state} | {r.seconds:.0f} | {memory:.1f} |"
            f" {r.apart:.0e} |"
        )
    own = [r for r, _ in results]
    partly = _listed([r for r in own if r.state != "EQUAL"])
    return "\n\n".join([
        _made(command, own), "The check by itself is in the seconds and the memory.", "\n".join(rows),
        f"Not simply EQUAL:\n\n{partly}",
    ])  # fmt: skip


def write(path: Path, mode: str, section: str) -> None:
    """Put a section in its place on the page; the others stay."""
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    text = INTRO.format(count=len(styles()))
    for each, title in TITLES.items():
        found = re.search(rf"^## {title}\n\n(.*?)(?=^## |\Z)", old, re.S | re.M)
        body = section if each == mode else found.group(1).strip() if found else "Not run yet."
        text += f"\n## {title}\n\n{body}\n"
    path.write_text(text, encoding="utf-8")
