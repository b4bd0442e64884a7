"""The page about what became of the mutants."""

from __future__ import annotations

import platform
from collections.abc import Callable
from datetime import date
from importlib.metadata import version

from evidence.core_mutants.equal import EQUAL
from evidence.core_mutants.nearest import GROUPS
from evidence.core_mutants.session import Job, Outcome

Judged = list[tuple[str, Job, Outcome]]


def page(
    now: Judged, earlier: Judged, key: Callable[[Job], tuple[str, str, str]], seed: int, drawn: int
) -> str:
    """All of them in Markdown: of what is drawn now those that are judged, and those judged earlier."""
    judged = now + earlier
    versions = ", ".join(f"{each} {version(each)}" for each in ("jax", "flax", "torch", "numpy"))
    equal = [job for _, job, outcome in judged if not outcome.by and key(job) in EQUAL]
    alive = [(group, job) for group, job, outcome in judged if not outcome.by and key(job) not in EQUAL]
    killed = len(judged) - len(equal) - len(alive)
    lines = [
        "# Mutants of the core",
        "",
        "For those who change the core: which slips its tests see.",
        "",
        "A mutant has one expression changed: another operator, comparison, number or condition, or an"
        " argument left out, drawn by syntax tree, of every file as many as of any other. The tests"
        " nearest to the file that run the line must fail; what survives needs a test, or computes the"
        " same.",
        "",
        f"`python -m evidence.core_mutants --seed {seed}`, {date.today()}, Python"
        f" {platform.python_version()}, {versions}: of {len(judged)} mutants {killed} are killed and"
        f" {len(equal)} equal, together {(killed + len(equal)) / max(len(judged), 1):.1%}; {len(alive)}"
        " survive.",
        "",
        *_parts(drawn, drawn - len(now), len(earlier)),
        "| group | files | mutants | killed | equal | survive | CPU seconds a mutant |",
        "|---|---|---|---|---|---|---|",
    ]
    for group in GROUPS:
        own = [(job, outcome) for name, job, outcome in judged if name == group]
        if own:
            same = sum(job in equal for job, _ in own)
            lives = sum(name == group for name, _ in alive)
            seconds = sum(outcome.seconds for _, outcome in own) / len(own)
            files = len({job.file for job, _ in own})
            counts = f"{len(own)} | {len(own) - same - lives} | {same} | {lives}"
            lines.append(f"| {group} | {files} | {counts} | {seconds:.1f} |")
    if alive:
        lines += ["", "## Those that survive", "", "| where | change |", "|---|---|"]
        lines += [
            f"| `{job.file}:{job.mutant.line}` | `{_cell(job.mutant.change)}` |" for _, job in alive
        ]
    if equal:
        lines += ["", "## Those that are equal", "", "| where | change | why |", "|---|---|---|"]
        for job in equal:
            where, why = f"{job.file}:{job.mutant.line}", EQUAL[key(job)]
            lines.append(f"| `{where}` | `{_cell(job.mutant.change)}` | {why} |")
    return "\n".join(lines) + "\n"


def _parts(drawn: int, left: int, earlier: int) -> list[str]:
    text = f"{drawn - left} of these are of the {drawn} that the command draws."
    if earlier:
        text += f" {earlier} more were drawn and judged earlier, of lines that are still the same."
    if left:
        text += (
            f" {left} of the {drawn} are not judged yet; those that no test notices take longest and are"
            " more often among these."
        )
    return [text, ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
