"""The file that `--repro` writes: both formulas, their inputs, and the difference."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from parity.measure.tolerance import FLOAT64
from parity.verifier.report.comparison import Place
from parity.verifier.repro.side import Arrays, CodeSide, side_of
from parity.verifier.search.layouts import layout_changes
from parity.verifier.search.region import Gap, Region
from vit_config import ConfigError, InputError
from vit_config.files.atomic import check_writable, write_atomically

LITERALS = 64
"""Largest array, in numbers, that is written into the program; larger ones go into an .npz beside it."""
SECONDS = 120
"""Time limit for running the written program."""


def write_repro(place: Place, path: Path, *, a: str = "A", b: str = "B") -> str:
    """Write a place as a program that needs neither the models nor this project, and run it.

    Args:
        place: of a `Comparison`.
        path: the .py file; arrays of more than `LITERALS` numbers go into an .npz of the same name.
        a, b: what the programs are called.

    Returns:
        What the program prints.

    Raises:
        InputError: the place has no end, or is made of what cannot be written; nothing is written then.
        ConfigError, MissingFileError: see `check_repro`.
    """
    check_repro(path)
    if place.gap is None or not place.gap.closed:
        raise InputError(f"{path}: the difference has no end, so there is no region to write")
    arrays = path.with_suffix(".npz")
    text, held = script(place, place.gap, arrays.name, a, b)
    with TemporaryDirectory() as folder:
        trial = Path(folder) / path.name
        trial.write_text(text, encoding="utf-8")
        if held:
            (Path(folder) / arrays.name).write_bytes(_npz(held))
        printed = _run(trial)
    if held:
        check_writable(arrays)
        write_atomically(arrays, _npz(held))
    write_atomically(path, text.encode())
    return printed


def check_repro(path: Path) -> None:
    """Refuse a file that no program can be written to.

    Raises:
        ConfigError: its name does not end in .py, it is a folder, or the .npz beside it is not of such a
            program.
        MissingFileError: its folder does not exist.
    """
    if path.suffix != ".py":
        raise ConfigError(f"{path}: a Python program is written; give a name that ends in .py")
    check_writable(path)
    arrays = path.with_suffix(".npz")
    before = path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""
    if arrays.exists() and _loaded(arrays.name) not in before:
        raise ConfigError(
            f"{arrays}: already exists, and arrays of {path.name} might replace it; give another name"
        )


def _loaded(name: str) -> str:
    """Return the line of a written program that loads the arrays of that file."""
    return f'with np.load(Path(__file__).with_name("{name}")) as file:'


def script(
    place: Place, gap: Gap, arrays_name: str, a: str, b: str
) -> tuple[str, dict[str, np.ndarray]]:
    """Return the program, and the arrays that it loads from `arrays_name`."""
    arrays = Arrays()
    of_a = side_of(gap.a, arrays)
    own = np.asarray(gap.a.program.values([gap.a.end])[gap.a.end])
    layout = next(
        (
            each
            for each in layout_changes(own.shape, gap.value_a.shape)
            if _same(each.of(own), gap.value_a)
        ),
        None,
    )
    if layout is None:  # an order that was followed back to where it arose
        arrays = Arrays()
        of_a = side_of(_end_alone(gap), arrays, given=gap.value_a)
    of_b = side_of(gap.b, arrays)
    big = {k: v for k, v in arrays.held.items() if v.size > LITERALS}
    frameworks = {of_a.framework, of_b.framework}
    code = "\n".join([*of_a.lines, *of_b.lines])
    lines = [f'"""{_title(place, gap, a, b)}"""', "", *_imports(frameworks, code, bool(big)), ""]
    if big:
        lines.append(_loaded(arrays_name))
        lines.append("    arrays = dict(file)")
    for name, value in arrays.held.items():
        lines.append(f"{name} = {_array(name, value, name in big)}  # {arrays.about[name]}")
    for letter, side in (("a", of_a), ("b", of_b)):
        lines += ["", "", f"def {letter}({', '.join(side.parameters)}):"]
        lines += [f"    {line}" for line in side.lines]
    shown = "of_a" if layout is None else layout.code("of_a", own.shape)
    lines += [
        "",
        "",
        f"of_a = {_called('a', of_a)}",
        f"of_b = {_called('b', of_b)}",
        *([f"of_a = {shown}  # in B's layout"] if shown != "of_a" else []),
        "known = np.isfinite(of_a) | np.isfinite(of_b)  # infinite on one side only is a difference",
        "apart = np.where(known, np.where(known, of_a, 0) - np.where(known, of_b, 0), 0)",
        "size = np.linalg.norm(of_a[np.isfinite(of_a)])",
        f"many = np.count_nonzero(np.abs(apart) > {FLOAT64} * size)",
        'print(f"relative difference {np.linalg.norm(apart) / size:.3g},"',
        '      f" in {many} of {apart.size} numbers")',
    ]
    return "\n".join(lines) + "\n", big


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _end_alone(gap: Gap) -> Region:
    return Region(gap.a.program, gap.a.end, [])


def _title(place: Place, gap: Gap, a: str, b: str) -> str:
    what = ": ".join(filter(None, (place.cause or place.kind, place.message)))
    lines = [f"Where {a} (A) and {b} (B) part: {what}.", ""]
    lines += [f"{side}  {part.where}  {part.formula}" for side, part in (("A", place.a), ("B", place.b))]
    text = "\n".join([*lines, "", f"Relative difference when this was written: {gap.error:.3g}."])
    return text.replace("\\", "\\\\").replace('"""', "'''") + "\n"


def _imports(frameworks: set[str], code: str, files: bool) -> list[str]:
    lines = ["from pathlib import Path", ""] if files else []
    if "jax" in frameworks:
        lines += ["import jax", "import jax.numpy as jnp"]
    lines.append("import numpy as np")
    if "torch" in frameworks:
        lines.append("import torch")
    if "jax" in frameworks:
        lines += ["from jax import lax"] * ("lax." in code)
        lines += ["", 'jax.config.update("jax_enable_x64", True)']
    if "aten." in code:
        lines += ["", "aten = torch.ops.aten"]
    return lines


def _array(name: str, value: np.ndarray, loaded: bool) -> str:
    if loaded:
        return f'arrays["{name}"]'
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        text = str(value.tolist()).replace("inf", "np.inf").replace("nan", "np.nan")
        return f"np.array({text})"
    return f"np.array({value.tolist()}, dtype=np.{value.dtype.name})"


def _called(name: str, side: CodeSide) -> str:
    if side.framework == "torch":
        given = ", ".join(f"torch.tensor({each})" for each in side.arguments)
        return f"{name}({given}).numpy() * 1.0"
    if side.framework == "jax":
        given = ", ".join(f"jnp.asarray({each})" for each in side.arguments)
        return f"np.asarray({name}({given})) * 1.0"
    return f"{name}({', '.join(side.arguments)}) * 1.0"


def _npz(arrays: dict[str, np.ndarray]) -> bytes:
    written = BytesIO()
    np.savez(written, **arrays)  # type: ignore[arg-type]
    return written.getvalue()


def _run(path: Path) -> str:
    """Run a program and return what it prints; it must run before it is handed to anybody."""
    try:
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True,
                              timeout=SECONDS, cwd=path.parent)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InputError(f"{path.name}: the program would run longer than {SECONDS} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"{path.name}: this place cannot be written as a program: {last}")
    return done.stdout.strip()
