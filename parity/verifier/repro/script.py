"""The file that `--repro` writes: both formulas and their difference, with an .npz of their arrays."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from parity.measure.shown import portable
from parity.measure.tolerance import FLOAT64
from parity.verifier.report.comparison import Place
from parity.verifier.repro.side import Arrays, side_of
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.region import Gap, Region
from vit_config import ConfigError, InputError
from vit_config.files.atomic import check_writable, write_atomically
from vit_config.terminal import harmless

SECONDS = 120
"""Time limit for running the written program."""
LOADED = 'arrays = dict(np.load(Path(__file__).with_suffix(".npz")))'
"""The line of a written program that loads its arrays."""
IMPORTS = {
    "jax": ("import jax", "import jax.numpy as jnp", "from jax import lax"),
    "numpy": ("import numpy as np",),
    "torch": ("import torch",),
}
FIRST = {"torch": "aten = torch.ops.aten", "jax": 'jax.config.update("jax_enable_x64", True)'}
"""What a framework needs before anything is computed."""
COMPARED = f"""
known = np.isfinite(of_a) | np.isfinite(of_b)  # infinite on one side only is a difference
apart = np.where(known, np.where(known, of_a, 0) - np.where(known, of_b, 0), 0)
size = np.linalg.norm(of_a[np.isfinite(of_a)])
print(f"relative difference {{np.linalg.norm(apart) / size:.3g}},"
      f" in {{np.count_nonzero(np.abs(apart) > {FLOAT64} * size)}} of {{apart.size}} numbers")
"""


def write_repro(place: Place, path: Path, *, a: str = "A", b: str = "B") -> str:
    """Write a place as a program that needs neither the models nor this project, and run it.

    Args:
        place: of a `Comparison`.
        path: the .py file; the arrays go into an .npz of the same name.
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
    text, held = script(place, place.gap, a, b)
    files = {path: portable(harmless(text)).encode(), path.with_suffix(".npz"): _npz(held)}
    with TemporaryDirectory() as folder:
        for each, content in files.items():
            Path(folder, each.name).write_bytes(content)
        printed = _run(Path(folder, path.name))
    for each, content in files.items():
        check_writable(each)
        write_atomically(each, content)
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
    if arrays.exists() and LOADED not in before:
        raise ConfigError(
            f"{arrays}: already exists, and arrays of {path.name} would replace it; give another name"
        )


def script(place: Place, gap: Gap, a: str, b: str) -> tuple[str, dict[str, np.ndarray]]:
    """Return the program, and the arrays that it loads."""
    arrays = Arrays()
    own = np.asarray(gap.a.program.values([gap.a.end])[gap.a.end])
    order = _order(own, gap.value_a)
    if order is None:  # an order that was followed back to where it arose
        of_a = side_of("a", Region(gap.a.program, gap.a.end, []), arrays, given=gap.value_a)
    else:
        of_a = side_of("a", gap.a, arrays)
    of_b = side_of("b", gap.b, arrays)
    frameworks = [each for each in IMPORTS if each in ("numpy", of_a.framework, of_b.framework)]
    lines = [f'"""{_title(place, gap, a, b)}"""', "", "from pathlib import Path", ""]
    lines += [line for each in frameworks for line in IMPORTS[each]]
    lines += ["", *(FIRST[each] for each in frameworks if each in FIRST), LOADED]
    lines += ["", "", *of_a.lines, "", "", *of_b.lines, "", "", f"of_a = {of_a.result}"]
    if order is not None and not np.array_equal(order, np.arange(own.size).reshape(own.shape)):
        arrays.held["order"] = order
        lines.append('of_a = of_a.reshape(-1)[arrays["order"]]  # in B\'s layout')
    return "\n".join([*lines, f"of_b = {of_b.result}"]) + COMPARED, arrays.held


def _order(own: np.ndarray, wanted: np.ndarray) -> np.ndarray | None:
    """Return where each number of an array in B's layout is in A's, flat; None if nothing tells."""
    places = np.arange(own.size).reshape(own.shape)
    for order in arrangements(places, wanted.shape):
        if np.array_equal(own.reshape(-1)[order], wanted, equal_nan=own.dtype.kind in "fc"):
            return order
    return None


def _title(place: Place, gap: Gap, a: str, b: str) -> str:
    what = ": ".join(filter(None, (place.cause or place.kind, place.message)))
    lines = [f"Where {a} (A) and {b} (B) part: {what}.", ""]
    lines += [f"{side}  {part.where}  {part.formula}" for side, part in (("A", place.a), ("B", place.b))]
    text = "\n".join([*lines, "", f"Relative difference when this was written: {gap.error:.3g}."])
    return text.replace("\\", "\\\\").replace('"""', "'''") + "\n"


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
