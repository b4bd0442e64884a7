"""Kernels that compute otherwise, planted in one of two processes; and settings that only round.

    python -m evidence.devices [--only NAME] [--write docs/devices.md]

Each row runs `parity diff A B --as-is`. A planted kernel must be found in its operation and no other; a
setting under which a right device rounds otherwise must raise no alarm. Exit status 1 if not.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import resource
import sys
import tempfile
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from parity.cli import main as parity

TORCH, JAX = "evidence.devices.programs", "evidence.devices.program_of_jax"


MARK = "## Measured\n"
"""Heading of the page below which the table is."""


class Row(NamedTuple):
    """Two runs, and the operation that must be found to differ; empty if none does."""

    what: str
    a: str
    b: str
    settings: tuple[str, ...] = ()
    planted: tuple[str, ...] = ()


def _planted(what: str, b: str, *operations: str, a: str = "plain") -> Row:
    return Row(what, f"{TORCH}:{a}", f"{TORCH}:{b}", planted=operations)


PLANTED = (
    _planted("factors of products in bfloat16", "products_bfloat16", "addmm"),
    _planted("factors of products in TensorFloat-32", "products_tf32", "addmm"),
    _planted("sums of products in bfloat16", "sums_bfloat16", "addmm"),
    _planted("attention's products in float16", "attention_float16", "matmul"),
    _planted("a convolution in bfloat16", "conv_bfloat16", "conv"),
    _planted("GELU by tanh", "gelu_tanh", "gelu"),
    _planted("a softmax rounded to bfloat16", "softmax_bfloat16", "softmax"),
    _planted("a softmax by a fast exponential", "softmax_fast", "softmax"),
    _planted("a norm whose statistics are in bfloat16", "norm_bfloat16", "layer_norm"),
    _planted("a norm with another epsilon", "norm_epsilon", "layer_norm"),
    _planted("sums of a residual in float16", "add_float16", "add"),
    _planted("the smallest numbers flushed to zero", "flushed", "conv", "layer_norm", a="tiny"),
)
CLEAN = (
    Row("the same", f"{TORCH}:plain", f"{TORCH}:plain"),
    Row("no vector instructions", f"{TORCH}:plain", f"{TORCH}:plain", ("ATEN_CPU_CAPABILITY=default",)),
    Row("AVX2", f"{TORCH}:plain", f"{TORCH}:plain", ("ATEN_CPU_CAPABILITY=avx2",)),
    Row("MKL's compatible branch", f"{TORCH}:plain", f"{TORCH}:plain", ("MKL_CBWR=COMPATIBLE",)),
    Row("one thread", f"{TORCH}:plain", f"{TORCH}:plain", ("OMP_NUM_THREADS=1",)),
    Row("without oneDNN", f"{TORCH}:plain", f"{TORCH}:without_onednn"),
    Row("sums of products in another order", f"{TORCH}:plain", f"{TORCH}:products_reordered"),
    Row("torch.compile", f"{TORCH}:plain", f"{TORCH}:compiled"),
    Row("float16, no vector instructions", f"{TORCH}:half", f"{TORCH}:half",
        ("ATEN_CPU_CAPABILITY=default",)),
    Row("bfloat16, no vector instructions", f"{TORCH}:bfloat16", f"{TORCH}:bfloat16",
        ("ATEN_CPU_CAPABILITY=default",)),
    Row("JAX, the same", f"{JAX}:plain", f"{JAX}:plain"),
    Row("XLA's fast math", f"{JAX}:plain", f"{JAX}:plain",
        ("XLA_FLAGS=--xla_cpu_enable_fast_math=true",)),
    Row("XLA's fast math, infinite logits", f"{JAX}:masked", f"{JAX}:masked",
        ("XLA_FLAGS=--xla_cpu_enable_fast_math=true",)),
    Row("XLA without its thread pool", f"{JAX}:plain", f"{JAX}:plain",
        ("XLA_FLAGS=--xla_cpu_multi_thread_eigen=false",)),
    Row("XLA for AVX2", f"{JAX}:plain", f"{JAX}:plain", ("XLA_FLAGS=--xla_cpu_max_isa=AVX2",)),
    Row("JAX in bfloat16, for AVX2", f"{JAX}:bfloat16", f"{JAX}:bfloat16",
        ("XLA_FLAGS=--xla_cpu_max_isa=AVX2",)),
    Row("JAX's bfloat16 products, which no CPU does", f"{JAX}:plain", f"{JAX}:plain",
        ("JAX_DEFAULT_MATMUL_PRECISION=bfloat16",)),
    Row("ViT-S of timm's names, no vector instructions", "torch:vit_small_patch16_224",
        "torch:vit_small_patch16_224", ("ATEN_CPU_CAPABILITY=default",)),
    Row("ViT-S in JAX, for AVX2", "jax:vit_small_patch16_224", "jax:vit_small_patch16_224",
        ("XLA_FLAGS=--xla_cpu_max_isa=AVX2",)),
)  # fmt: skip


class Result(NamedTuple):
    """What was said of a row."""

    verdict: str
    operations: int
    found: tuple[str, ...]
    reasons: tuple[str, ...]
    seconds: float

    def is_right(self, row: Row) -> bool:
        """Whether what was planted was found, and nothing else."""
        return set(self.found) == set(row.planted) and (self.verdict == "EQUAL") == (not row.planted)


def run(row: Row) -> Result:
    """Ask the product."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        out = Path(folder) / "report.json"
        settings = ("--env-b", *row.settings) if row.settings else ()
        parity(["diff", row.a, row.b, "--as-is", *settings, "--json", str(out)])
        report = json.loads(out.read_text())
    apart = report["apart"]
    return Result(
        report["verdict"], report["operations"], tuple(dict.fromkeys(each["name"] for each in apart)),
        tuple(dict.fromkeys(each["reason"] for each in apart)), time.perf_counter() - started,
    )  # fmt: skip


def said_of() -> str:
    """Return the sentence above the table: command, date, versions."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "jax", "numpy"))
    return f"`python -m evidence.devices --write docs/devices.md` ({date.today()}; {versions}):"


def main() -> int:
    """Run all rows, and print or write them as a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    parser.add_argument("--write", type=Path, help="page to write the table into")
    arguments = parser.parse_args()
    lines = [
        "| planted, or set | verdict | operations | found | reason | seconds |",
        "|---|---|--:|---|---|--:|",
    ]
    wrong = 0
    for row in (*PLANTED, *CLEAN):
        if arguments.only not in row.what:
            continue
        result = run(row)
        wrong += not result.is_right(row)
        said = (
            row.what, result.verdict, str(result.operations), ", ".join(result.found) or "-",
            "; ".join(result.reasons) or "-", f"{result.seconds:.0f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(said)} |")
        print(lines[-1] + ("" if result.is_right(row) else "  WRONG"), flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    right = len(lines) - 2 - wrong
    print(f"{right} of {len(lines) - 2} right; at most {peak:.1f} GiB in the process that runs A")
    if arguments.write:
        head = arguments.write.read_text(encoding="utf-8").partition(MARK)[0]
        arguments.write.write_text("\n".join([head + MARK, said_of(), "", *lines, ""]), encoding="utf-8")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
