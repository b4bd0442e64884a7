"""Arguments of convolutions and kinds of Fourier transforms, in one vocabulary for both frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WINDOW = "window"
"""Key of a convolution's window in the `extra` of its operation."""


@dataclass(frozen=True)
class Window:
    """The arguments of a convolution, for each axis that its window moves along."""

    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    """Before and behind each axis."""
    dilation: tuple[int, ...]
    """Dilation of the window."""
    groups: int = 1
    spread: tuple[int, ...] = ()
    """Dilation of the input, in a transposed convolution of JAX's."""
    more: tuple[str, ...] = ()
    """Arguments that one framework alone has, as text."""

    @property
    def text(self) -> str:
        """The arguments that differ from their defaults, as a formula shows them."""
        plain = {"stride": "1", "padding": "0", "dilation": "1", "groups": "1", "spread": "1"}
        values = {name: self.argument(name) for name in plain}
        shown = [f"{name}={each}" for name, each in values.items() if each not in ("", plain[name])]
        return ", ".join((*shown, *self.more))

    def argument(self, name: str) -> str:
        """Write an argument as a person would: one number where all axes have the same."""
        return shown(name, getattr(self, name))


def shown(name: str, value: Any) -> str:
    """Write an argument as a person would: one number where all axes have the same."""
    if not isinstance(value, tuple):
        return str(value)
    if name == "padding" and all(low == high for low, high in value):
        value = tuple(low for low, _ in value)
    equal = len(set(value)) == 1 and isinstance(value[0], int)
    return str(value[0]) if equal else str(value).replace(" ", "") if value else ""


def window_of_jax(params: Mapping[str, Any]) -> Window:
    """Return the window of the primitive `conv_general_dilated`."""
    batches = params["batch_group_count"]
    return Window(
        tuple(params["window_strides"]),
        tuple((int(low), int(high)) for low, high in params["padding"]),
        tuple(params["rhs_dilation"]),
        params["feature_group_count"],
        tuple(params["lhs_dilation"]),
        (f"batch_groups={batches}",) if batches != 1 else (),
    )


def window_of_torch(args: Sequence[Any]) -> Window:
    """Return the window of `aten.convolution`, whose first three arguments are operands."""
    stride, padding, dilation, transposed, behind, groups = args[3:9]
    more = ["transposed"] if transposed else []
    more += [f"output_padding={list(behind)}"] if any(behind) else []
    both = tuple((each, each) for each in padding)
    return Window(tuple(stride), both, tuple(dilation), groups, more=tuple(more))


def transform_of_jax(params: Mapping[str, Any]) -> str:
    """Name a Fourier transform of JAX's, whose inverse divides by the length; JAX multiplies by other
    norms afterwards."""
    kind = str(params["fft_type"]).rpartition(".")[2].lower()
    kind = {"0": "fft", "1": "ifft", "2": "rfft", "3": "irfft"}.get(kind, kind)
    return kind + (", scale=1/n" if kind.startswith("i") else "")


def transform_of_torch(name: str, args: Sequence[Any]) -> str:
    """Name one of torch's `_fft_r2c`, `_fft_c2r` and `_fft_c2c`, with its norm."""
    kind = {"_fft_r2c": "rfft", "_fft_c2r": "irfft"}.get(name) or ("fft" if args[3] else "ifft")
    return kind + ("", ", scale=1/sqrt(n)", ", scale=1/n")[args[2]]
