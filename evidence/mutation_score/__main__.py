"""The mutation score of the verifier: deliberate faults, each caught, located and explained - or not.

    python -m evidence.mutation_score [--quick] [--only NAME ... | --share K/N] [--write]

Both twins are built with the same weights, a fault is put into one of them, and the other is the
reference: `parity diff` must find the difference where the fault is, and name its cause first - or
none, where no single exchange explains it. Pairs without a fault must raise
nothing. Exit status: 0 if all that holds, 1 if not.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from evidence import ROOT

PAGE = ROOT / "docs" / "mutation_score.md"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="each fault once, each clean pair in one type"
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these faults alone")
    parser.add_argument("--share", metavar="K/N", help="one N-th of the faults, and of the clean pairs")
    parser.add_argument("--write", action="store_true", help="write docs/mutation_score.md")
    options = parser.parse_args()
    _prepare()

    from rich.console import Console

    from evidence.faults import FAULTS, STEP_FAULTS
    from evidence.mutation_score.page import line, page, summary, table
    from evidence.mutation_score.scores import CLEAN, clean_results, model_results, step_results
    from tests.support.share import parse

    started = time.perf_counter()
    console = Console(width=150, highlight=False, markup=False)
    pairs_of = CLEAN if not options.only else ()
    if options.share:
        share = parse(options.share)
        options.only, pairs_of = share.of([*FAULTS, *STEP_FAULTS]), share.of(CLEAN)
        console.print(f"share {share} of the faults")
    elif unknown := {*options.only} - {*FAULTS, *STEP_FAULTS}:
        parser.error(f"--only: no fault {', '.join(sorted(unknown))}")
    results, pairs = [], []
    for make in (model_results, step_results):
        for result in make(options.only, options.quick):
            results.append(result)
            console.print(line(result))
    for pair in clean_results(options.quick, pairs_of):
        pairs.append(pair)
        console.print(
            f"{'FAIL' if pair.raised else 'ok  '} no fault: {pair.name} {pair.dtype}", pair.raised or ""
        )
    seconds = time.perf_counter() - started
    console.print(table(results))
    for result in results:
        if not result.passed:
            console.print(line(result))
    console.print(f"{summary(results, pairs)}; {seconds:.0f} s")
    if options.write:
        PAGE.write_text(
            page(results, pairs, seconds, " ".join(["python -m evidence.mutation_score", *sys.argv[1:]]))
        )
    failed = any(not each.passed for each in results) or any(each.raised for each in pairs)
    return 1 if failed else 0


def _prepare() -> None:
    """Models here are small: quick to compile, not to run, and in the types that they are given in."""
    from parity.measure.compiling import compile_quickly

    compile_quickly()
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import torch

    jax.config.update("jax_enable_x64", True)
    torch.set_num_threads(1)


if __name__ == "__main__":
    sys.exit(main())
