"""Score `parity diff` on mistakes that people made in public.

    python -m evidence.museum [--only NAME ...] [--share K/N] [--write docs/museum.md]
    python -m evidence.museum --timed NAME ...

Each exhibit of evidence/museum is compared with its corrected form: is the mistake caught,
is one of the lines that are wrong printed, is a cause named, and is no name wrong? Exit status: 0 if all
are caught, 90 % are placed, 80 % are named and no name is wrong; 1 if not. `--timed` runs `parity
diff` from the shell.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from datetime import date
from pathlib import Path

from evidence import ROOT

HEAD = """# Mistakes that people made in public

For those who want to know whether `parity diff` finds what others got wrong. Each row is a public
thread whose mistake was written anew, small, beside its corrected form, in
`evidence/museum`: our code, their facts. The corrected form is A, the mistake is B.

- **line**: a line that is printed for B is one that is marked as wrong.
- **cause**: the name that is given. Every exhibit lists the names that are true of it; any other counts
  as wrong. The marks and the facts were written before the search was tried on them, the lists were put
  into the words of the causes once these existed: the number of lines is a measurement (one mark came
  later: of two equal factors, either may be the one too many), that of names says that none is false.
- `-`: no cause. No single exchange turns B's value into A's; the two formulas are what is said.

On the day the museum was opened, before the search was changed for it, it scored 87 of 89 caught (two
exhibits could not run), 70 on the right line, 30 named and 5 named wrongly.

Three of them as a new user meets them, a file with two functions and one command, timed from the shell
on a busy machine: `python -m evidence.museum --timed scale_of_the_heads merged_without_permute
exact_gelu_of_gemma` printed 13.7, 13.5 and 14.6 seconds, and each wrong line was among those shown.
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these exhibits alone")
    parser.add_argument("--share", metavar="K/N", help="one N-th of the exhibits")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page")
    parser.add_argument("--timed", nargs="+", metavar="NAME", help="as a new user would, by the clock")
    options = parser.parse_args()
    if options.timed:
        return int(not all([timed(name) for name in options.timed]))
    warnings.simplefilter("ignore")

    from evidence.museum.rooms import exhibits, judge
    from tests.support.share import parse

    chosen = options.only or [*exhibits()]
    if options.share:
        chosen = parse(options.share).of(chosen)
    rows, results, started = [], [], time.process_time()
    for name in chosen:
        judged, _ = judge(exhibits()[name])
        results.append(judged)
        said = ", ".join(judged.said) or "-"
        said += f" (wrong: {', '.join(judged.wrong)})" if judged.wrong else ""
        thread = judged.exhibit.address.removeprefix("https://github.com/")
        thread = thread.replace("/issues/", "#").replace("/pull/", "#")
        room = judged.exhibit.make.__module__.rpartition(".")[2]
        good = judged.caught and judged.placed and not judged.wrong
        print(f"{'ok  ' if good else 'MISS'} {name:34} {said}", flush=True)
        caught, placed = ("yes" if each else "**no**" for each in (judged.caught, judged.placed))
        link = f"[{thread}]({judged.exhibit.address})"
        rows.append(f"| {room} | {link} | {judged.exhibit.fact} | {caught} | {placed} | {said} |")
    total = len(results)
    counts = {
        "caught": sum(each.caught for each in results),
        "on the right line": sum(each.placed for each in results),
        "named": sum(each.named for each in results),
        "named wrongly": sum(bool(each.wrong) for each in results),
    }
    seconds = time.process_time() - started
    score = [f"| {name} | {n} of {total} | {100 * n / total:.0f} % |" for name, n in counts.items()]
    likely = [right for each in results for right in each.likely]
    hits = f"the likely line is a wrong one in {sum(likely)} of {len(likely)} places of several lines"
    print("\n".join(["", *score, hits, f"{seconds:.0f} CPU seconds"]))
    if options.write is not None:
        table = [
            "| room | thread | what was wrong | caught | line | cause |",
            "|---|---|---|---|---|---|",
        ]
        page = [
            HEAD,
            "`python -m evidence.museum --write docs/museum.md`"
            f" ({date.today()}, {seconds:.0f} CPU seconds):",
            "",
        ]
        page += ["| | | |", "|---|---|---|", *score, "", *table, *rows]
        options.write.write_text("\n".join(page) + "\n")
    good = counts["caught"] == total and counts["on the right line"] >= 0.9 * total
    good &= counts["named"] >= 0.8 * total and not counts["named wrongly"]
    return 0 if good else 1


def timed(name: str) -> bool:
    """Whether `parity diff` shows the wrong line of an exhibit, given as a file with two functions."""
    from evidence.museum.rooms import exhibits

    exhibit = exhibits()[name]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "port.py"
        file.write_text(
            f"from {exhibit.make.__module__} import {name}\n\n\n"
            f"def original():\n    return {name}()[0]\n\n\n"
            f"def port():\n    return {name}()[1]\n"
        )
        command = [sys.executable, "-m", "parity", "diff", f"{file}:original", f"{file}:port"]
        started = time.perf_counter()
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
    shown = any(f" {line} | " in run.stdout for _, line in exhibit.lines)
    print(f"{name}: {seconds:.1f} s, {'the line is shown' if shown else 'the line is NOT shown'}")
    return shown


if __name__ == "__main__":
    sys.exit(main())
