"""Damaged checkpoints by the thousand: refused in one line, the same model, or it is said what changed.

    python -m evidence.checkpoint_mutations [--rounds 20] [--seed 0] [--only hf-vit]

A small checkpoint of every dialect - as written here, as its ecosystem's own library writes the same
tensors, and as transformers itself saves its models - is changed at random
(changes.py), read, and converted to the project's own file. Exit status 1 if anything else happens than
verdicts.py allows.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from evidence.checkpoint_mutations.changes import Mutation, change, change_config
from evidence.checkpoint_mutations.samples import Sample, of_transformers, resaved, samples, write_sample
from evidence.checkpoint_mutations.verdicts import Verdict, judge
from parity.porting.dialects import find_dialects
from parity.porting.formats.weights_folder import SIDECARS
from vit_config.errors import first_line

OTHER_KINDS = (("hf-vit", ".bin"), ("timm-vit", ".pth"), ("google", ".safetensors"), ("clip", ".npz"))
"""Dialects in other kinds of files than their own."""


def every_sample(folder: Path, only: str = "") -> Iterator[Sample]:
    """All that there are, of the dialects whose names begin so."""
    yield from samples(folder, only)
    for name, suffix in OTHER_KINDS:
        if name.startswith(only):
            yield write_sample(find_dialects(name)[0], folder, suffix=suffix)
    if not only:
        yield from of_transformers(folder)


def attack(
    sample: Sample, rounds: int, seed: object, folder: Path
) -> Iterator[tuple[Mutation, Verdict]]:
    """Change a sample so many times, each time anew, and judge what comes of it."""
    rng, expected, copy = random.Random(f"{seed} {sample.name}"), sample.model, folder / "copy"
    for _ in range(rounds):
        shutil.copytree(sample.folder, copy)
        mutation = change(rng, copy, sample.weights, signed=sample.signed)
        yield mutation, judge(sample, expected, copy, mutation)
        shutil.rmtree(copy)


def contradict(
    sample: Sample, rounds: int, seed: object, folder: Path
) -> Iterator[tuple[Mutation, Verdict]]:
    """Edit the config files beside a file that says its schema itself.

    Whatever makes another model of the same tensors in a file that does not, must be refused here.
    """
    silent = resaved(sample, folder)
    both = [(each, each.model, folder / f"copy of {each.name}") for each in (sample, silent)]
    for index in range(rounds):
        verdicts = []
        for each, expected, copy in both:
            rng = random.Random(f"{seed} {sample.name} {index}")
            shutil.copytree(each.folder, copy)
            names = [name for name in SIDECARS if (copy / name).is_file()]
            mutation = change_config(rng, copy / rng.choice(names))
            verdicts.append(judge(each, expected, copy, mutation))
            shutil.rmtree(copy)
        signed, unsigned = verdicts
        if unsigned.outcome == "indistinct" and signed.outcome != "refused":
            signed = Verdict("WRONG", f"{signed.outcome}, where without a header: {unsigned.why}")
        yield mutation, signed
    shutil.rmtree(silent.folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--rounds", type=int, default=20, help="changes of each sample")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a dialect, or how its name begins")
    arguments = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    totals: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        (inside := Path(name) / "attack").mkdir()
        for sample in every_sample(Path(name), arguments.only):
            rounds = [attack(sample, arguments.rounds, arguments.seed, inside)]
            if sample.signed and not sample.entry:
                rounds.append(contradict(sample, arguments.rounds, arguments.seed, inside))
            for mutation, verdict in (each for some in rounds for each in some):
                counts[mutation.kind, verdict.outcome] += 1
                totals[verdict.outcome] += 1
                if verdict.outcome == "WRONG":
                    what = f"{mutation.kind}, {mutation.what}"
                    print(f"{sample.name}: {what}: {verdict.why}\n", flush=True)
    if not totals:
        parser.error(f"--only {arguments.only}: no dialect begins so")
    for (kind, what), count in sorted(counts.items()):
        print(f"{kind:14s} {what:11s} {count}")
    print(f"{sum(totals.values())}: {', '.join(f'{n} {what}' for what, n in totals.items())}")
    return 1 if totals["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
