"""A saved check: its JSON with a seal, and whether the same check still gives the same today."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from parity.measure.device import Device
from parity.measure.precision import Precision
from parity.measure.shown import finite, portable
from parity.measure.tolerance import FEW, FLOAT64, LIMITS, RATIO, DType
from parity.porting.opening import hub
from parity.porting.opening.provenance import digest_of
from parity.porting.reading.checkpoint import read_checkpoint
from parity.twins.check import CheckReport, check_config, check_weights
from parity.twins.check_report import JSON_VERSION, to_dict
from vit_config import MissingFileError, ViTConfig, WeightsError
from vit_config.base import Listed, Schema
from vit_config.errors import naming
from vit_config.files.foreign import parse_json, read_text, without_repeats
from vit_config.files.json_digest import json_digest
from vit_config.files.stored import guarded

SEAL = "seal"


class Arguments(Schema, frozen=True):
    """What a saved check is of, and the arguments of `check_weights` or `check_config`."""

    subject: str
    checkpoint: Annotated[dict[Literal["path", "sha256"], str], Field(min_length=2)] | None
    dtypes: Annotated[tuple[DType, ...], Listed, Field(min_length=1)] | None = None
    batch_size: PositiveInt = 2
    seed: NonNegativeInt = 0
    precision: Precision = "highest"
    device: Device = "cpu"
    fault: str | None = None
    token_offset: float = 0.0
    wrong: dict[str, Any] | None = None


def sealed(report: CheckReport, arguments: dict[str, Any], checkpoint: str | None) -> dict[str, Any]:
    """Return a report as plain data that `run_again` repeats; docs/parity.md describes every field.

    Args:
        arguments: those of `check_config`, or of `check_weights`, that were asked for.
        checkpoint: the path or the name on the Hub of the weights; None for a preset.
    """
    content = {
        **to_dict(report),
        "arguments": arguments,
        "checkpoint": checkpoint and {"path": checkpoint, "sha256": _digest(checkpoint)},
        "digests": {"batch": report.batch_digest, "parameters": report.digests},
        "tolerances": _tolerances(),
    }
    content = portable(finite(content))
    return content | {SEAL: json_digest(content)}


def read_sealed(path: Path) -> dict[str, Any]:
    """Read a saved check, and see that nobody edited it.

    Raises:
        MissingFileError: there is no such file.
        WeightsError: the file is no such JSON, is of another version, or was edited.
    """
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file; give one that parity check --json wrote")
    try:
        content = parse_json(read_text(path), pairs=without_repeats)
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path}: not valid JSON ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict) or SEAL not in content or "arguments" not in content:
        raise WeightsError(f"{path}: no sealed report; give one that parity check --json wrote")
    if content.get("version") != JSON_VERSION:
        raise WeightsError(
            f"{path}: version {content.get('version')!r}, this version reads {JSON_VERSION}; use the"
            " version of the package that wrote it"
        )
    stated, actual = content.pop(SEAL), json_digest(content)
    if stated != actual:
        raise WeightsError(
            f"{path}: its seal is {str(stated)[:16]}..., but its content has {actual[:16]}...: it was"
            " edited after it was written; get the original, or make it again"
        )
    with naming(path), guarded(path, "saved check"):
        of = {name: content[name] for name in ("subject", "checkpoint")}
        Arguments(**of, **content["arguments"])
    return content


def run_again(saved: dict[str, Any], path: Path) -> CheckReport:
    """Run the check of a saved report with today's code: its schema, weights, batch and types.

    Args:
        path: the report's file; a checkpoint that is not where it was is looked for beside it.

    Raises:
        ConfigError: a schema that this version does not know.
        MissingFileError: the checkpoint is not there.
        WeightsError: the checkpoint has another digest.
    """
    arguments, checkpoint = saved["arguments"], saved["checkpoint"]
    if checkpoint is None:
        cfg = ViTConfig.from_json(json.dumps(saved["schema"]), where=f"{path}: schema")
        return check_config(cfg, subject=saved["subject"], **arguments)
    source = checkpoint["path"]
    if not hub.is_name(source) and not Path(source).exists():
        source = str(path.parent / Path(source).name)
        if not Path(source).exists():
            raise MissingFileError(
                f"{checkpoint['path']}: the checkpoint of {path} is not there, and not beside it; put it"
                " back"
            )
    if (actual := _digest(source)) != checkpoint["sha256"]:
        raise WeightsError(
            f"{source}: its SHA-256 is {actual[:16]}..., {path} is of a file with"
            f" {checkpoint['sha256'][:16]}...; get that one"
        )
    of_schema = ("token_offset", "wrong")
    return check_weights(source, **{n: each for n, each in arguments.items() if n not in of_schema})


def find_failures(saved: dict[str, Any], today: CheckReport) -> Iterator[str]:
    """Yield the reasons why a saved check does not hold today, the gravest first; none if it does."""
    arguments = saved["arguments"]
    if mistake := arguments.get("fault") or arguments.get("wrong"):
        yield f"it was made with a mistake on purpose, {mistake}"
    if not saved["passed"]:
        yield "it was not passed"
    if not today.passed:
        worst = [f"{d.dtype}: {d.where or '(model)'} - {d.detail}" for d in today.divergences]
        yield f"today the check is not passed ({[*worst, *today.uncertified, today.unseen][0]})"
    now = to_dict(today)
    if fields := [name for name, value in saved["schema"].items() if now["schema"].get(name) != value]:
        yield f"the checkpoint is read as another schema today: {', '.join(fields)}"
    for dtype, digests in saved["digests"]["parameters"].items():
        if today.digests.get(dtype) != digests:
            yield f"{dtype}: other parameters than then"
    if saved["digests"]["batch"] != today.batch_digest:
        yield "another batch than then"
    for name, value in _tolerances().items():
        if name not in saved["tolerances"] or value > saved["tolerances"][name]:
            yield f"tolerance {name} is looser: {saved['tolerances'].get(name)} then, {value:g} today"
    counts = {(each["dtype"], each["level"]): each["tensors"] for each in now["levels"]}
    for each in saved["levels"]:
        if (count := counts.get((each["dtype"], each["level"]), 0)) < each["tensors"]:
            where = f"{each['dtype']} {each['level']}"
            yield f"{where}: only {count} of {each['tensors']} tensors are compared today"


def find_changes(saved: dict[str, Any], today: CheckReport) -> Iterator[str]:
    """Yield what is different in versions and devices, which decides nothing."""
    for name in dict.fromkeys((*saved["environment"], *today.environment)):
        before, now = saved["environment"].get(name), today.environment.get(name)
        if before != now:
            yield f"{name} {before} then, {now} today"


def _digest(source: str) -> str:
    return digest_of(read_checkpoint(source).container.files)


def _tolerances() -> dict[str, float]:
    """Return every tolerance that a check judges by, by name."""
    tolerances = {"float64": FLOAT64, "ratio": RATIO, "few": float(FEW)}
    for dtype, limits in LIMITS.items():
        tolerances |= {f"{dtype}.{level}": float(bound) for level, bound in limits.items()}
    return tolerances
