"""The core in groups of files, each with the tests nearest to it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Group(NamedTuple):
    """Files that the same tests judge, as patterns below the root and below `tests`."""

    files: tuple[str, ...]
    tests: tuple[str, ...]

    def sources(self, root: Path) -> list[str]:
        """The names of the files, in order."""
        return sorted({str(p.relative_to(root)) for each in self.files for p in root.glob(each)})


def _twins(names: str) -> tuple[str, ...]:
    return tuple(f"{twin}/{name}.py" for twin in ("vit_jax", "vit_torch") for name in names.split())


LAYERS = (
    "vit_config/test_parameters.py",
    *(f"twins/test_{each}.py" for each in ("widths", "numerics", "reference_paper", "kernels")),
    *(f"twins/test_{each}.py" for each in ("features", "patches", "head_tokens", "drop")),
    *(f"twins/test_{each}.py" for each in ("dynamic_size", "bad_input", "bounded")),
    "parity/twins/test_check.py::test_every_switch_agrees_in_float64",
)
TABLES = tuple(
    f"parity/porting/dialects/test_{each}.py"
    for each in ("dialect_core", "dialect_layout", "dialect_plugin", "dialect_timm_files", "unsure")
)
FORMATS = "parity/porting/formats/test_"
GROUPS = {
    "formulas": Group(
        ("vit_config/schedule.py", "vit_config/layer_decay.py", "vit_config/numerics/*.py"),
        (
            "parity/measure/test_exact.py",
            *(f"vit_config/test_{each}.py" for each in ("schedules", "tables", "resample")),
            "parity/porting/test_resize.py",
            "twins/test_recipe_layers.py",
        ),
    ),
    "measure": Group(
        tuple(
            f"parity/measure/{each}.py"
            for each in ("error", "redraw", "judged", "tolerance", "nearness", "recording")
        ),
        (
            *(f"parity/measure/test_{each}.py" for each in ("exact", "measure", "recording")),
            "parity/twins/test_outcome.py",
            "parity/verifier/report/test_reports.py",
        ),
    ),
    "tables of dialects": Group(
        tuple(
            f"parity/porting/dialects/{each}.py"
            for each in ("layout", "table", "transfer", "matching", "dialect", "axes")
        ),
        (*TABLES, "parity/porting/dialects/test_one_frame.py", "parity/porting/test_rewrites.py"),
    ),
    "rewrites": Group(("parity/porting/dialects/rewrites/*.py",), ("parity/porting/test_rewrites.py",)),
    "files": Group(
        (
            "parity/porting/formats/stack.py",
            "parity/porting/formats/budget.py",
            "parity/porting/formats/archive.py",
            "vit_config/files/foreign.py",
            "vit_config/terminal.py",
        ),
        (
            "parity/measure/test_exact.py",
            "vit_config/test_foreign.py",
            *(f"{FORMATS}{each}.py" for each in ("hostile", "containers_pickles", "containers_torch")),
            f"{FORMATS}containers_damage.py",
        ),
    ),
    "batches": Group(
        (
            "vit_train/batches/data.py",
            "vit_train/augmentation/mixing.py",
            "vit_train/augmentation/affine.py",
        ),
        (
            *(
                f"vit_train/test_{each}.py"
                for each in ("data", "data_views", "data_errors", "data_sets", "data_hosts", "augment")
            ),
            "parity/porting/test_mixing.py",
        ),
    ),
    "layers": Group(
        _twins("attention heads norm mlp patch pooling positions rel_pos rope block")
        + _twins("parallel bounded branches kernels linear model"),
        LAYERS,
    ),
    "steps": Group(
        _twins("step loss optim"),
        (
            *(
                f"twins/test_recipe_{each}.py"
                for each in ("losses", "averages", "clipping", "layers", "parts", "updates")
            ),
            "vit_train/test_distillation.py",
        ),
    ),
    "dropout": Group(_twins("drop"), ("twins/test_drop.py",)),
    "leaves": Group(
        (
            *_twins("init leaves weights functional"),
            "vit_config/parameters.py",
            "vit_jax/stacks.py",
        ),
        (
            "twins/test_layouts.py",
            "twins/test_kernels.py",
            "twins/test_widths.py",
            "twins/test_init.py",
            "vit_jax/test_stacks.py",
            "vit_config/test_parameters.py",
        ),
    ),
}
