"""The worst error of each level against its limit, as a picture."""

from __future__ import annotations

import io
import math

from parity.twins.certificate.format import Certificate, Level

FLOOR = 1e-18
"""Where an error or a limit of zero is drawn."""
CEILING = 1e3
"""Where what is not finite is drawn."""


def draw_levels(certificate: Certificate) -> bytes:
    """A panel for each type, a place for each level; PNG."""
    from matplotlib.figure import Figure

    dtypes = list(dict.fromkeys(level.dtype for level in certificate.levels))
    figure = Figure(figsize=(9, 0.6 + 3.0 * len(dtypes)), layout="constrained")
    panels = figure.subplots(len(dtypes), 1, squeeze=False)[:, 0]
    for axis, dtype in zip(panels, dtypes, strict=True):
        _draw(axis, [level for level in certificate.levels if level.dtype == dtype])
        axis.set_title(f"{certificate.subject}, {dtype}", loc="left")
    figure.suptitle(certificate.verdict)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=120, format="png")
    return drawn.getvalue()


def _draw(axis, levels: list[Level]) -> None:
    places = range(len(levels))
    same = all(level.dtype == "float64" for level in levels)
    worst = [level.worst for level in levels]
    starts, ends = [x - 0.3 for x in places], [x + 0.3 for x in places]
    limits = _shown([each.limit for each in worst])
    axis.hlines(limits, starts, ends, color="tab:red", label="limit")
    if same:
        errors = [each.error for each in worst]
        axis.plot(places, _shown(errors), "o", color="tab:blue", label="Flax against PyTorch")
    else:
        for side, shift, colour, label in (
            ("jax_error", -0.1, "tab:blue", "Flax against its float64 run"),
            ("torch_error", 0.1, "tab:orange", "PyTorch against its float64 run"),
        ):
            errors = _shown([getattr(each, side) for each in worst])
            axis.plot([x + shift for x in places], errors, "o", color=colour, label=label)
    for place, level in zip(places, levels, strict=True):
        if not level.passed:
            axis.axvspan(place - 0.45, place + 0.45, color="tab:red", alpha=0.12, lw=0)
    axis.set_yscale("log")
    axis.set_xlim(-0.6, len(levels) - 0.4)
    axis.set_xticks(places, [level.level for level in levels])
    axis.set_ylabel(f"relative error (0: {FLOOR:g})")
    axis.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _shown(values: list[float]) -> list[float]:
    return [min(max(each, FLOOR), CEILING) if math.isfinite(each) else CEILING for each in values]
