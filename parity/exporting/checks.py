"""The checks of one exported program: its outputs beside the twins', also in its type's arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from parity.exporting.compare import OutputComparison, Outputs, compare, prepare_pictures
from parity.exporting.formats import Format, torch_traced
from parity.exporting.narrow.graph import Graph
from parity.exporting.narrow.search import AUTO, Kept, Search, search
from parity.exporting.programs import jax_program
from parity.exporting.replay import replay
from parity.exporting.subject import Subject
from vit_config import ConfigError

REPLAY = "running the program in a process of its own"
SMALL = ("float16", "bfloat16")
MOST_IMAGES = 8
"""How many of the user's images are run."""


def check_kept(subject: Subject, names: Sequence[str], bound: float | None) -> None:
    """Refuse what is to stay in float32 where nothing can, or without what is near enough."""
    kind = "int8" if subject.int8 else subject.dtype
    if names and kind not in (*SMALL, "int8"):
        raise ConfigError(
            f"keep_float32 (--keep-float32): all of a {kind} program is in {kind}; give dtype = float16,"
            " bfloat16 or int8 (--dtype float16)"
        )
    if bool(names) != (bound is not None):
        raise ConfigError(
            "keep_float32 and bound (--keep-float32 auto --bound 1e-2) go together: what stays in"
            " float32, and the largest relative error of an output"
        )
    if bound is not None and not bound > 0:
        raise ConfigError(f"bound = {bound:g} (--bound {bound:g}): must be positive")
    if AUTO in names and len(names) > 1:
        raise ConfigError(
            "keep_float32 = auto (--keep-float32 auto): leaves no names to be given beside it"
        )


class Checks:
    """A program's runs on some pictures, and what is kept of it."""

    def __init__(
        self, subject: Subject, form: Format, batches: Sequence[np.ndarray], bound: float | None
    ) -> None:
        self._subject, self._form, self._bound = subject, form, bound
        self._batches = batches
        self._ready = [prepare_pictures(subject, each) for each in batches]
        self.kept: Kept | None = None

    def find(self, names: Sequence[str]) -> Kept:
        """Find what must stay in float32; see `search`.

        Raises:
            ConfigError: a name is of nothing, or nothing that is kept brings it within the bound.
        """
        assert self._bound is not None
        self.kept = search(self._graph_of, self._images, names, self._bound)
        return self.kept

    def compare(
        self, path: Path, subject: Subject, begin: Callable[[str], object] = lambda what: None
    ) -> tuple[OutputComparison, ...]:
        """Run a program in its own process, and compare its outputs with the twins'.

        Args:
            subject: the model, quantised or not.
            begin: called with the name of each run.

        Raises:
            WeightsError: the program cannot be read or run.
        """
        form, given = self._form, self._batches
        if subject.inside is None:
            given = [laid_out(each, form) for each in self._ready]
        begin(REPLAY)
        own = self._in_own_type(path, given) if subject.dtype in SMALL else None
        if form.name == "onnx" and subject.dtype == "bfloat16":  # which ONNX Runtime's CPU does not have
            assert own is not None
            outputs = [own]
        else:
            outputs = replay(form, path, given)
        bound = None if subject.dtype == "float32" and not subject.int8 else self._bound
        return compare(subject, self._ready, outputs, begin, own=own, bound=bound)

    def unfit(self, compared: Sequence[OutputComparison], subject: Subject) -> str:
        """Say why the type is too small for a program, and what mends it; empty if it is not that."""
        dtype, worst = subject.dtype, max(compared, key=lambda each: each.own or each.error)
        error = max(worst.own or 0.0, worst.error)
        if self._bound is not None and (subject.int8 or dtype in SMALL):
            least = "" if self.kept is None else f"; with all in float32 it is {self.kept.high:.1e}"
            return f"{worst.output} would be {error:.1e} from float64: more than --bound allows{least}"
        if dtype not in SMALL or all(each.own_passed and each.limit for each in compared):
            return ""
        mends = "--keep-float32 auto --bound 1e-2 keeps in float32 what must be"
        graph = self._graph_of(self._images)
        if first := Search(graph).overflow:
            step, rounding = first
            return (
                f"{step.name} at {step.line} overflows in {dtype}: it reaches {rounding.largest:.3g},"
                f" and {dtype} ends at {graph.largest:.5g}; {mends}"
            )
        error = math.inf if worst.own is None else worst.own
        return (
            f"{worst.output} would be {error:.1e} from float64 in {dtype}'s own arithmetic, where"
            f" {worst.most:.1e} is allowed; {mends}"
        )

    def _in_own_type(self, path: Path, given: Sequence[np.ndarray]) -> Outputs | None:
        """Return the outputs of a program in its type's own arithmetic; None if PyTorch runs it so."""
        if self._form.name == "onnx":
            return _by_nodes(path, given)
        if self.kept is None and self._form.name == "torch-export":
            return None
        outputs = self._graph_of(self._images).run(()) if self.kept is None else self.kept.outputs
        names = self._subject.outputs
        names = sorted(names) if self._form.name == "stablehlo" else names  # JAX sorts them
        return dict(zip(names, outputs, strict=True))

    @cached_property
    def _images(self) -> np.ndarray:
        """All prepared images, or texts, as the program takes them, rounded to its type: what that costs
        is not the program's."""
        images = np.concatenate([laid_out(each, self._form) for each in self._ready])
        dtype = next(iter(self._subject.arrays.values())).dtype
        return images.astype(dtype).astype(np.float32) if images.dtype.kind == "f" else images

    @cached_property
    def _program(self) -> Any:
        """The program as it is on images that are prepared, of any number."""
        subject = self._subject
        subject = replace(
            subject, input="float32" if subject.input == "uint8" else subject.input, batch=None
        )
        if self._form.name == "stablehlo":
            return jax_program(subject)
        return torch_traced(subject, apart=self._form.name == "onnx" and not subject.int8)

    def _graph_of(self, images: np.ndarray) -> Graph:
        if self._subject.int8:
            from parity.exporting.narrow.int8 import Int8Graph

            whole = len(images) == len(self._images)
            return Int8Graph(self._program, images, [*map(len, self._ready)] if whole else [len(images)])
        dtype = self._subject.dtype
        if self._form.name == "stablehlo":
            from parity.exporting.narrow.equations import JaxGraph

            return JaxGraph(self._program, dtype, images)
        from parity.exporting.narrow.aten import TorchGraph

        return TorchGraph(self._program, dtype, images, rounds_numbers=self._form.name == "onnx")


def laid_out(images: np.ndarray, form: Format) -> np.ndarray:
    """Return prepared images (B, H, W, C) in the layout of a format; token ids (B, N) have none."""
    return (
        images
        if form.layout == "NHWC" or images.ndim == 2
        else np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    )


def _by_nodes(path: Path, given: Sequence[np.ndarray]) -> Outputs:
    """Evaluate an ONNX file node by node in the types that it names, in PyTorch, where a product
    accumulates in float32 and each result is rounded."""
    import torch

    from parity.exporting.onnx_graph import graph_module

    module = graph_module(path)
    with torch.no_grad():
        made = [module(torch.from_numpy(each)) for each in given]
    return {name: np.concatenate([each[name].numpy() for each in made]) for name in made[0]}
