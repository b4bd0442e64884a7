"""``parity check``: show that the twins are the same function."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from parity.cli.support.command_line import parse
from parity.cli.support.reading import shown_as
from parity.faults import FAULTS
from parity.faults.steps import STEP_FAULTS
from parity.faults.twin import FRAMEWORKS
from parity.measure.precision import PRECISIONS, Precision
from parity.measure.tolerance import DType
from parity.porting import hub
from parity.porting.hub import is_path
from parity.twins.check import DEFAULT_DTYPES, Report, check_preset, check_weights, environment
from parity.twins.report import (
    REDUCED,
    print_report,
    summary_header,
    summary_lines,
    write_json,
    write_svg,
)
from parity.twins.timm_sweep.report import check_family
from vit_config import PRESETS, ConfigError
from vit_config.files.weights_file import check_writable

STEPS_ONLY = ("config", "data", "data_dir", "plot")
"""Flags that go with --steps alone."""


@dataclass(frozen=True)
class Arguments:
    """Build both twins with the same weights, feed both the same batch, and compare every parameter,
    every module's output, the logits, the loss and every gradient. With --steps, train both and compare
    every step and the whole run. With --all, compare both twins with timm: every architecture of the
    installed version. Exit status: 0 equal, 1 different or not certified, 2 bad input.
    """

    subject: Annotated[
        tuple[str, ...], tyro.conf.Positional, shown_as("[PRESET or FILE or PATTERN ...]")
    ] = ()
    """Presets; or checkpoints of any dialect: paths, or names on the Hub; with --all, patterns of
    architectures such as 'vit_base_*'."""
    pretrained: Annotated[tuple[str, ...], shown_as("TAG ...")] = ()
    """Pretrained weights to check: names of timm's such as vit_base_patch16_224.augreg_in21k, which are
    downloaded from the Hub unless its cache has them, or hf-hub:ORG/NAME."""
    all: tyro.conf.FlagCreatePairsOff[bool] = False
    """Check every architecture of the installed timm, in float64: the names and shapes of all its
    tensors, then the function on a copy shrunk in depth and width."""
    full_size: tyro.conf.FlagCreatePairsOff[bool] = False
    """With --all: do not shrink, but leave out what is larger than --max-parameters."""
    max_parameters: float = 150e6
    """With --full-size: the largest architecture to check."""
    processes: int = 2
    """With --all: how many processes share the work."""
    dtype: Annotated[tuple[DType, ...], tyro.conf.arg(metavar="{float64,float32,bfloat16} ...")] = (
        DEFAULT_DTYPES
    )
    """Types to compare in. float64 shows that the algebra is the same; float32 and bfloat16 that neither
    twin is less accurate than the other."""
    precision: Annotated[Precision, tyro.conf.arg(metavar="{" + ",".join(PRECISIONS) + "}")] = "highest"
    """Of float32 products in both twins: in full; TensorFloat-32 or the like, where the device has it;
    or as the frameworks are set. float32 at less than full precision is shown, but not certified."""
    batch_size: Annotated[int | None, shown_as("N", "2; of a data set the recipe's")] = None
    """Images in a batch."""
    seed: int = 0
    """Seed of the re-drawn weights and of the batch; with --steps, that of the run."""
    steps: Annotated[int | None, shown_as("N")] = None
    """Train both twins of a preset so many steps on the same batches, from the preset's own initial
    values: every step from the same state, and the whole run beside its shadows."""
    recipe: Annotated[str | None, shown_as("NAME or FILE")] = None
    """Train a recipe of recipes/ beside the code that it comes from - Big Vision's chain, timm, DeiT's
    and MAE's scripts - for twenty steps, tiny, in float64; `all` for every one that has an original."""
    config: Annotated[Path | None, shown_as("FILE")] = None
    """With --steps: a JSON or TOML file {"recipe": {...}, "model": {...}, "data": SET}, as `parity
    train` takes it; what it leaves out is the preset's own."""
    data: Annotated[str | None, shown_as("SET", "random; digits for the preset digits")] = None
    """With --steps: digits, tfds:NAME, or random batches."""
    data_dir: Annotated[Path | None, shown_as("DIR", "$TFDS_DATA_DIR or ~/tensorflow_datasets")] = None
    """With --steps: folder of prepared data sets."""
    plot: Annotated[Path | None, shown_as("FILE")] = None
    """With --steps: draw the two curves, as .png, .svg or .pdf."""
    token_offset: float = 0.0
    """Draw a preset's positions from N(OFFSET, 2^2): its norms then see inputs of that mean."""
    fault: Annotated[str | None, shown_as("NAME[@TWIN][:BLOCK]")] = None
    """Inject a deliberate fault and watch the check fail; `--fault list` shows them all. Without more
    than its NAME it is put into every block of the twin that the list says; `NAME@jax` chooses the twin,
    `NAME@torch:2` the block, too."""
    wrong: Annotated[str | None, shown_as("FIELD=VALUE")] = None
    """Build the PyTorch twin of a preset with another value of a schema field (as JSON, or a bare word),
    and watch the check fail."""
    json: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the report as JSON to this file."""
    svg: Annotated[Path | None, shown_as("FILE")] = None
    """Also draw the report as an SVG picture."""
    certificate: Annotated[Path | None, shown_as("FILE.json")] = None
    """Also write a certificate to this file, with a page to read (.md) and pictures (.png) beside it;
    `parity verify-certificate FILE.json` runs the check again and compares."""
    force: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the files of a certificate that is there."""


def main(argv: list[str], prog: str = "parity check") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(Arguments, argv, prog=prog)
    if arguments.fault == "list":
        for name, fault in FAULTS.items():
            print(f"{name:33}{FRAMEWORKS[fault.twin]}: {fault.summary}")
        for name, step_fault in STEP_FAULTS.items():
            print(f"{name:33}--steps: {step_fault.summary}")
        return 0
    for path in (arguments.json, arguments.svg, arguments.plot):
        if path is not None:
            check_writable(path)
    _refuse_misplaced(arguments)
    if arguments.recipe is not None:
        from parity.cli.support.check_recipe import check

        return check(arguments.recipe, arguments.seed)
    if arguments.all:
        return check_family(
            arguments.subject,
            processes=arguments.processes,
            max_parameters=arguments.max_parameters if arguments.full_size else None,
            seed=arguments.seed,
            json_path=arguments.json,
        )
    subjects = _subjects(arguments)
    if not subjects:
        raise ConfigError("give a preset or a checkpoint, or --all; parity check --help explains")
    if arguments.steps is not None:
        return _check_steps(arguments, subjects[0])
    if len(subjects) > 1:
        return _check_several(arguments, subjects)
    certify = None
    if arguments.certificate:
        from parity.cli.support.certifying import function_certifier

        wrong = _wrong(arguments.wrong)
        certify = function_certifier(arguments, is_file=_is_file(subjects[0]), wrong=wrong)
    report = _check(arguments, subjects[0])
    print_report(report)
    if arguments.json:
        write_json(report, arguments.json)
    if arguments.svg:
        write_svg(report, arguments.svg)
    if certify is not None:
        return certify(report)
    return 0 if report.passed else 1


def _check_steps(arguments: Arguments, subject: str) -> int:
    from parity.cli.support.check_steps import check_picture, run, steps_job

    _check_batch_size(arguments)
    if subject not in PRESETS and is_path(subject):
        raise ConfigError(
            f"{subject} is a checkpoint, but --steps trains a preset from its initial values; give a"
            " preset"
        )
    if arguments.plot:
        check_picture(arguments.plot)
    job = steps_job(
        subject,
        config=arguments.config,
        data=arguments.data,
        seed=arguments.seed,
        batch_size=arguments.batch_size,
    )
    certify = None
    if arguments.certificate:
        from parity.cli.support.certifying import training_certifier

        certify = training_certifier(arguments, job)
    return run(
        subject,
        job,
        arguments.steps or 0,
        data_dir=arguments.data_dir,
        dtypes=arguments.dtype,
        precision=arguments.precision,
        fault=arguments.fault,
        json=arguments.json,
        plot=arguments.plot,
        certify=certify,
    )


def _subjects(arguments: Arguments) -> list[str]:
    """What to check, presets and files first."""
    prefixes = (hub.HUB, hub.TIMM)
    weights = (each if each.startswith(prefixes) else hub.TIMM + each for each in arguments.pretrained)
    return [*arguments.subject, *weights]


def _refuse_misplaced(arguments: Arguments) -> None:
    """Flags that would be ignored are mistakes."""
    if arguments.seed < 0:
        raise ConfigError(f"--seed {arguments.seed}: must not be negative")
    defaults = Arguments()

    def given(*names: str) -> list[str]:
        changed = [n for n in names if getattr(arguments, n) != getattr(defaults, n)]
        return ["--" + name.replace("_", "-") for name in changed]

    if arguments.recipe is not None:
        others = [name for name in vars(defaults) if name not in ("recipe", "seed")]
        if extra := given(*others):
            raise ConfigError(f"{', '.join(extra)}: does not go with --recipe; leave it out")
        return
    if arguments.force and not arguments.certificate:
        raise ConfigError("--force: goes with --certificate only")
    if arguments.all:
        if extra := given(
            "pretrained", "dtype", "precision", "batch_size", "token_offset", "fault", "wrong", "svg",
            "certificate", "steps", *STEPS_ONLY,
        ):  # fmt: skip
            raise ConfigError(
                f"{', '.join(extra)}: does not go with --all, which fixes it; leave it out"
            )
        if arguments.processes < 1:
            raise ConfigError(f"--processes {arguments.processes}: must be at least 1")
        if given("max_parameters") and not arguments.full_size:
            raise ConfigError("--max-parameters: goes with --full-size only")
        return
    if extra := given("full_size", "max_parameters", "processes"):
        raise ConfigError(f"{', '.join(extra)}: goes with --all only")
    count = len(_subjects(arguments))
    if arguments.steps is None and (extra := given(*STEPS_ONLY)):
        raise ConfigError(f"{', '.join(extra)}: goes with --steps only")
    if arguments.steps is not None and (extra := given("pretrained", "token_offset", "wrong", "svg")):
        raise ConfigError(f"{', '.join(extra)}: does not go with --steps; leave it out")
    if count > 1 and (
        extra := given("json", "svg", "certificate", "fault", "wrong", "token_offset", "steps")
    ):
        raise ConfigError(f"{', '.join(extra)}: goes with one subject, not {count}")
    if arguments.fault and arguments.wrong:
        raise ConfigError("--fault and --wrong are two deliberate mistakes; give one")


def _check_several(arguments: Arguments, subjects: Sequence[str]) -> int:
    print("largest error of each level; in brackets, in epsilons of the type\n" + summary_header())
    failed = 0
    uncertified: dict[str, None] = {}
    for name in subjects:
        report = _check(arguments, name)
        failed += not report.passed
        print(*summary_lines(report), sep="\n", flush=True)
        uncertified.update(dict.fromkeys(report.uncertified))
    print(f"{len(subjects) - failed} of {len(subjects)} equal")
    for flag in uncertified:
        print(f"not certified: {REDUCED} - {flag}")
    versions = (f"{name} {value}" for name, value in environment(arguments.precision).items())
    print(", ".join(versions))
    return 1 if failed else 0


def _check(arguments: Arguments, subject: str) -> Report:
    if not _is_file(subject):
        return check_preset(
            subject,
            token_offset=arguments.token_offset,
            fault=arguments.fault,
            wrong=_wrong(arguments.wrong),
            **_common(arguments),
        )
    if arguments.token_offset or arguments.wrong:
        flag = f"--wrong {arguments.wrong}" if arguments.wrong else "--token-offset"
        raise ConfigError(
            f"{flag} goes with a preset, but {subject} is a checkpoint, whose weights and schema are"
            " checked as they are; leave it out"
        )
    return check_weights(subject, fault=arguments.fault, **_common(arguments))


def _is_file(subject: str) -> bool:
    """Whether a checkpoint is checked, not a preset."""
    return subject not in PRESETS and is_path(subject)


def _wrong(text: str | None) -> dict[str, Any] | None:
    """FIELD=VALUE as a change to a schema."""
    if text is None:
        return None
    field, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--wrong {text}: expected FIELD=VALUE, such as act=gelu_tanh")
    try:
        return {field: json.loads(value)}
    except ValueError:
        return {field: value}


def _check_batch_size(arguments: Arguments) -> None:
    if arguments.batch_size is not None and arguments.batch_size < 1:
        raise ConfigError(f"--batch-size {arguments.batch_size}: must be at least 1")
    if not arguments.dtype:
        raise ConfigError("--dtype: name at least one of float64, float32, bfloat16")


def _common(arguments: Arguments) -> dict[str, Any]:
    _check_batch_size(arguments)
    if not math.isfinite(arguments.token_offset):
        raise ConfigError(f"--token-offset {arguments.token_offset}: must be a finite number")
    return {
        "dtypes": arguments.dtype,
        "precision": arguments.precision,
        "batch_size": 2 if arguments.batch_size is None else arguments.batch_size,
        "seed": arguments.seed,
    }
