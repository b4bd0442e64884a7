"""Write docs/recipes.md: the recipes shipped, what they cost, and how equal they are to their originals.

``python tools/recipes_table.py`` dry-runs every recipe and checks those that have an original: a quarter
of an hour.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import rehearse_recipes

from parity.cli.check_recipe import FOLDER
from parity.cli.support.job_file import base_job
from parity.twins.originals.check import LARGEST, ORIGINALS, STEPS, check_recipe

PAGE = FOLDER.parent / "docs" / "recipes.md"
HEAD = """# The recipes shipped

For those who want to train by a published recipe. Each is a file in `recipes/` whose head says command,
hardware, time, accuracy to expect, where the numbers come from, and what differs from the original.
[recipe.md](recipe.md) has the formula behind every field. `python train.py --config recipes/NAME.toml`
trains one; a flag changes a field of it.

| recipe | is | accuracy to expect |
|---|---|---|
"""
COSTS = """
## What they cost

Every recipe builds and takes two steps in both frameworks: `python tools/rehearse_recipes.py` runs
`train.py --config recipes/NAME.toml --dry-run --dry-run-batch 4` for each, on random images and weights.
*State* is parameters, moments and averages, *process* the peak of the whole process with four images.
Seconds were taken on two CPU cores that others used, too: an order of magnitude, no comparison. Steps in
all are those with the recipe's own batch.

"""
MIDDLE = f"""
## Are they those recipes?

```
parity check-recipe all
```

runs the original's code beside both twins for {STEPS} steps in float64, from the same parameters, on
the same batches and the same draws, at tiny sizes, with the schedule squeezed into these steps and
without dropout: the model, the losses of mixed labels, optimiser, parameter groups, decay, clipping,
schedule, mixup and cutmix are all in it. Every loss and every parameter must be within {LARGEST:.0e} of
the original's. *moved* says how far the parameters went, relative to themselves, so that nothing is
equal by standing still. The table was written by `python tools/recipes_table.py`:

| recipe | original | twin | losses | parameters | moved | images on the same draws |
|---|---|---|---|---|---|---|
"""
END = """
What needs TensorFlow - Big Vision's crops, resizing and RandAugment - was recorded once by
`tools/record_tensorflow.py` with TensorFlow 2.21 and Big Vision's own source;
`tests/vit_train/test_augmentation_tensorflow.py` holds ours against the recording, pixel by pixel.
ThreeAugment and colour jitter are held against timm and torchvision by
`tests/vit_train/test_augmentation_peers.py`. The bias of queries, keys and values is judged together
with its weight: that of the keys is ignored by softmax, so that Adam makes its steps of rounding noise.
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
    title = head.splitlines()[0].removeprefix("# ").rstrip(".:")
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
    main()
