"""What a machine with one GPU says of this project, each command within its share of the time.

    python -m evidence.gpu FOLDER [--device gpu] [--seconds 300]

Writes one JSON file for each command into FOLDER, and FOLDER/gpu.md, the page made from them. What
fails, or does not end in its time, is said there, and the others run. With `--device cpu` tiny models
rehearse it. `evidence/gpu.sh` makes the environment first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from evidence import ROOT

LEAST = 10.0
"""Seconds without which a command is not begun."""


class Part(NamedTuple):
    """A command, and the most seconds that it is given."""

    name: str
    argv: tuple[str, ...]
    seconds: float
    writes: bool = True
    """Whether `--json` is added to it."""


def parts(device: str) -> list[Part]:
    """Return the commands, in the order of what is wanted most."""
    real = device != "cpu"
    sizes = ("tiny", "small", "base") if real else ("tiny",)
    preset = "vit_base_patch16_224" if real else "test_vit"
    bench = (
        "--batch",
        "256" if real else "2",
        "--repeats",
        "3" if real else "1",
        "--in-a-row",
        "10" if real else "1",
    )
    sides = ("vit_jax-cudnn", "timm", "timm-compiled") if real else ("vit_jax", "timm")
    types = ("float64", "float32", "bfloat16")
    check = ("-m", "parity", "check", preset, "--device", device, "--dtype", *types)
    by_torch = "cuda" if real else "cpu"
    same = ("-m", "parity", "diff", "--as-is", "--device-b")
    return [
        Part("check", check, 80),
        Part("devices_torch", (*same, by_torch, f"torch:{preset}"), 40),
        Part("devices_jax", (*same, device, f"jax:{preset}"), 40),
        *(
            Part(f"bench_{size}", ("-m", "evidence.bench", f"vit_{size}_patch16_224", *bench, "--dtype",
                                   "bfloat16" if real else "float32", "--sides", *sides), 70)
            for size in sizes
        ),
        Part("fsdp", ("train.py", "--mesh", "fsdp=-1", "--recipe.epochs", "1", "--dry-run"), 60,
             writes=False),
    ]  # fmt: skip


def run(part: Part, folder: Path, seconds: float) -> dict[str, Any]:
    """Run a command, and return what it says of itself; its report is FOLDER/NAME.json."""
    out = folder / f"{part.name}.json"
    out.unlink(missing_ok=True)
    argv = [sys.executable, *part.argv, *(("--json", str(out)) if part.writes else ())]
    started, why, said = time.perf_counter(), "", ""
    try:
        if seconds < LEAST:
            raise subprocess.TimeoutExpired(argv, max(seconds, 0))
        done = subprocess.run(
            argv, cwd=ROOT, timeout=seconds, capture_output=True, text=True, check=False
        )
        said = done.stdout
        why = (
            "" if done.returncode in (0, 1) else (done.stderr.strip().splitlines() or ["no message"])[-1]
        )
    except subprocess.TimeoutExpired:
        why = f"did not end in {seconds:.0f} s"
    report = json.loads(out.read_text()) if out.is_file() else None
    return {
        "command": " ".join(("python", *part.argv)), "seconds": time.perf_counter() - started,
        "why_not": why, "report": report, "printed": said,
    }  # fmt: skip


def page(results: dict[str, dict[str, Any]], device: str) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# On a GPU, in five minutes\n"
    yield "For anyone who has one: what `evidence/gpu.sh` said of this code.\n"
    yield f"{date.today()}, {machine(device)}.\n"
    for name, each in results.items():
        yield f"## {name}\n"
        yield f"`{each['command']}` ({each['seconds']:.0f} s)\n"
        if each["why_not"]:
            yield f"Not done: {each['why_not']}\n"
        elif each["printed"].strip():
            yield f"```\n{each['printed'].rstrip()}\n```\n"


def machine(device: str) -> str:
    """Return the device's name and the versions of what runs on it."""
    name = device
    if device == "gpu":
        query = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
        try:
            name = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            name = "no NVIDIA GPU that nvidia-smi knows"
    versions = []
    for package in ("torch", "jax", "flax", "timm"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"no {package}")
    return ", ".join([name, *versions])


def main() -> int:
    """Run all, as far as the time goes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--seconds", type=float, default=300.0, help="of all commands together")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    end = time.perf_counter() + arguments.seconds
    results: dict[str, dict[str, Any]] = {}
    for part in parts(arguments.device):
        left = min(part.seconds, end - time.perf_counter())
        results[part.name] = run(part, arguments.folder, left)
        said = results[part.name]
        print(f"{part.name}: {said['why_not'] or 'done'} ({said['seconds']:.0f} s)", flush=True)
        text = "\n".join(page(results, arguments.device))
        (arguments.folder / "gpu.md").write_text(text, encoding="utf-8")  # whatever ends this
        (arguments.folder / "gpu.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    return int(any(each["why_not"] for each in results.values()))


if __name__ == "__main__":
    sys.exit(main())
