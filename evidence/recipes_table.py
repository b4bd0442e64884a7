"""Write docs/recipes.md: the recipes shipped, what they cost, and how equal they are to their originals.

``python -m evidence.recipes_table`` dry-runs every recipe and checks those that have an original:
a quarter of an hour.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from evidence import positional, rehearse_recipes
from evidence.originals.__main__ import FOLDER
from evidence.originals.check import LARGEST, ORIGINALS, STEPS, check_recipe
from parity.cli.support.job_file import base_job
from vit_config.errors import first_line

PAGE = FOLDER.parent / "docs" / "recipes.md"
HEAD = """# The recipes shipped

For anyone who wants to train by a published recipe: `python train.py --config recipes/NAME.toml`
trains one; a flag changes a field of it. The head of each file states the command, hardware, time,
expected accuracy, the sources of the numbers, and the differences from the original.
[recipe.md](recipe.md) has the formula behind every field.

| recipe | is | accuracy to expect |
|---|---|---|
"""
COSTS = """
## What they cost

`python -m evidence.rehearse_recipes` builds every recipe and takes two steps in both frameworks: it runs
`train.py --config recipes/NAME.toml --dry-run --dry-run-batch 4` for each, on random images and
weights. *State* is the memory of parameters, moments and averages, *process* the peak memory of the
whole process with four images. The seconds were measured on two CPU cores that other programs used,
too: they give the order of magnitude and allow no comparison. *Steps in all* is the number of steps
with the recipe's own batch.

"""
MIDDLE = f"""
## Are they those recipes?

```
python -m evidence.originals all
```

This command runs the original's code beside both twins for {STEPS} steps in float64, from the same
parameters, on the same batches and the same draws, at tiny sizes, without dropout, with the schedule
compressed into these steps. It covers the model, the losses of mixed labels, optimiser, parameter
groups, decay, clipping, schedule, mixup and cutmix. Every loss and every parameter must be within
{LARGEST:.0e} of the original's. *moved* is the relative change of the parameters: it shows that they
did move. `python -m evidence.recipes_table` wrote the table:

| recipe | original | twin | losses | parameters | moved | images on the same draws |
|---|---|---|---|---|---|---|
"""
END = """
Big Vision's crops, resizing and RandAugment need TensorFlow. `tools/record_tensorflow.py` recorded
them once with TensorFlow 2.21 and Big Vision's own source;
`tests/vit_train/test_augmentation_tensorflow.py` compares ours with the recording, pixel by pixel.
`tests/vit_train/test_augmentation_peers.py` compares ThreeAugment and colour jitter with timm and
torchvision. The bias of queries, keys and values is judged together with its weight, because softmax
ignores the bias of the keys and Adam makes its steps of rounding noise.
"""


def main() -> None:
    """Run every check and write the page."""
    lines = [HEAD.rstrip("\n")]
    lines += [_shipped(path) for path in sorted(FOLDER.glob("*.toml"))]
    lines += [COSTS.rstrip("\n") + "\n", *rehearse_recipes.table(4)]
    lines += [MIDDLE.rstrip("\n"), *_checked(), END.rstrip("\n")]
    PAGE.write_text("\n".join(lines) + "\n")


def _shipped(path: Path) -> str:
    head = path.read_text().partition("\npreset")[0]
    title = first_line(head).removeprefix("# ").rstrip(".:")
    accuracy = re.search(r"^# Accuracy +(.*)$((?:\n# {11}.*)*)", head, re.MULTILINE)
    assert accuracy is not None, path
    more = (line.removeprefix("#").strip() for line in accuracy[2].split("\n"))
    words = " ".join(" ".join([accuracy[1], *more]).split())
    return f"| `{path.stem}` | {title} | {words} |"


def _checked() -> Iterator[str]:
    for name, original in ORIGINALS.items():
        for row in check_recipe(name, base_job(None, FOLDER / f"{name}.toml")):
            yield (
                f"| {name} | {original.source} | {row.twin} | {row.loss:.1e} | {row.params:.1e} |"
                f" {row.moved:.2g} | {row.pixels} |"
            )
            print(name, row.twin, row.loss, row.params, flush=True)


if __name__ == "__main__":
    positional(__doc__)
    main()
