"""A certificate as a page to file."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from parity.twins.certificate.format import Certificate, Level
from parity.twins.certificate.seal import seal_of

CLAIMS = {
    "function": "the Flax model and the PyTorch model are the same function",
    "training": "the Flax trainer and the PyTorch trainer train alike",
}
VERDICTS = {
    "EQUAL": "**EQUAL**: {claim}, within the limits below.",
    "NOT EQUAL": "**NOT EQUAL**: it was checked whether {claim}. They differ.",
    "NOT CERTIFIED": "**NOT CERTIFIED**: it was checked whether {claim}. All that was compared"
    " agrees, but that says nothing.",
}


def page(certificate: Certificate, name: str, pictures: Mapping[str, str]) -> str:
    """The page in Markdown.

    Args:
        name: of the file with the certificate, which lies beside the page.
        pictures: what each picture shows, by its file name.
    """
    return "\n".join(
        [
            f"# {_title(certificate)}",
            "",
            VERDICTS[certificate.verdict].format(claim=CLAIMS[certificate.kind]),
            *_list(certificate.reasons),
            "",
            *_compared(certificate),
            *_levels(certificate.levels),
            *_yardstick(certificate),
            *(f"![{text}]({file})\n" for file, text in pictures.items()),
            *_environment(certificate),
            *_verifying(certificate, name),
        ]
    )


def _title(certificate: Certificate) -> str:
    return f"Certificate of {certificate.kind} parity: {certificate.subject}"


def _compared(certificate: Certificate) -> list[str]:
    """What was compared: the models, their parameters, what they were fed."""
    data = certificate.data
    rows = [("made", certificate.made), ("subject", certificate.subject)]
    if file := certificate.checkpoint:
        rows += [("checkpoint", f"{file.name}, {file.dialect}"), ("its SHA-256", f"`{file.sha256}`")]
    rows.append(("schema, SHA-256", f"`{certificate.config_sha256}`"))
    if certificate.recipe_sha256:
        rows.append(("recipe, SHA-256", f"`{certificate.recipe_sha256}`"))
    if certificate.dropped:
        rows.append(("set to 0 for the comparison", ", ".join(certificate.dropped)))
    rows += [("fed", data.words), ("batches", f"{data.batches}, SHA-256 `{data.sha256}`")]
    if data.fingerprint:
        rows.append(("data set's fingerprint", f"`{data.fingerprint}`"))
    rows.append(("seeds", ", ".join(f"{name} {seed}" for name, seed in certificate.seeds.items())))
    for dtype, digests in certificate.parameters.items():
        rows += _both(f"{dtype} parameters", digests.initial.jax, digests.initial.torch)
        if digests.final:
            rows += _both(f"{dtype} after training", digests.final.jax, digests.final.torch)
    return ["## What was compared", "", *_table(("", ""), rows), ""]


def _both(what: str, jax: str, torch: str) -> list[tuple[str, str]]:
    if jax == torch:
        return [(f"{what}, both models", f"`{jax}`")]
    return [(f"{what}, Flax", f"`{jax}`"), (f"{what}, PyTorch", f"`{torch}`")]


def _levels(levels: Sequence[Level]) -> list[str]:
    head = ("type", "level", "tensors", "worst tensor", "Flax", "PyTorch", "limit", "from", "")
    rows = [
        (
            each.dtype,
            each.level,
            str(each.tensors),
            _worst(each),
            _number(each.worst.jax_error),
            _number(each.worst.torch_error),
            _number(each.worst.limit),
            each.worst.origin,
            "ok" if each.passed else f"**{each.failures} differ**",
        )
        for each in levels
    ]
    return [
        "## Levels",
        "",
        *_table(head, rows),
        "",
        "float64: the relative difference of the twins, twice the same. Other types: each twin's"
        " distance to its own float64 run.",
        "",
    ]


def _worst(level: Level) -> str:
    if level.worst.error == 0:
        return "-"
    step = "" if level.worst.step is None else f", step {level.worst.step}"
    return f"{level.worst.tensor}{step}"


def _yardstick(certificate: Certificate) -> list[str]:
    tolerances = certificate.yardstick.tolerances
    stated = ", ".join(f"{name} {value:g}" for name, value in tolerances.items())
    said = ["## Yardstick", "", f"Tolerances (`parity/measure/tolerance.py`): {stated}.", ""]
    for dtype, run in certificate.yardstick.runs.items():
        rows = [
            (
                part,
                _number(curves.twins[-1]),
                f"{_number(min(curves.shadows[-1]))} to {_number(max(curves.shadows[-1]))}",
                _number(curves.limits[-1]),
                "ok" if not curves.failures else f"**parted at step {curves.failures[0]}**",
            )
            for part, curves in run.curves.items()
        ]
        head = ("part", "twins", "shadows", "limit", "")
        steps = len(run.losses)
        said += [f"{dtype}, running freely, distances after {steps} steps:", "", *_table(head, rows), ""]
        said += [f"{run.stability.sentence}.", ""]
    return said


def _environment(certificate: Certificate) -> list[str]:
    flags = certificate.precision
    rows = [
        ("versions", _pairs(certificate.versions)),
        ("devices", _pairs(certificate.devices)),
        ("float32 products asked for", flags.requested),
        ("Flax's flags", _pairs(flags.jax)),
        ("PyTorch's flags", _pairs(flags.torch)),
        *((f"code of {name}, SHA-256", f"`{value}`") for name, value in certificate.sources.items()),
    ]
    return ["## Environment", "", *_table(("", ""), rows), ""]


def _verifying(certificate: Certificate, name: str) -> list[str]:
    return [
        "## How to verify",
        "",
        "```",
        shlex.join(["parity", "verify-certificate", name]),
        "```",
        "",
        "runs the check again, with the schema, recipe, seeds and limits of the certificate, and"
        " compares. The check itself was",
        "",
        "```",
        shlex.join(certificate.command),
        "```",
        "",
        f"Seal of `{name}`: `{seal_of(certificate)}`. This page is not sealed; that file is what"
        " counts.",
        "",
    ]


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}"


def _list(sentences: Sequence[str]) -> list[str]:
    return ["", *(f"- {each}" for each in sentences)] if sentences else []


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    cells = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
