"""Running a PyTorch model forward and backward, recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from parity.measure.nudge import nudged
from parity.measure.precision import Precision, torch_at
from parity.measure.traces.record_torch import Torch
from parity.measure.traces.recorder import Recorder
from parity.measure.traces.structure import visit_arrays
from parity.measure.traces.watch_torch import is_array
from parity.measure.traces.writer import Writer
from parity.verifier.diff.edges_torch import Function, Scripted
from parity.verifier.diff.subject import Subject
from parity.verifier.operations.aten.copies import copied
from parity.verifier.operations.output import cotangent, main_output
from parity.verifier.operations.program import TRAINING
from vit_torch.weights import from_numpy, to_numpy


class TorchRunner:
    """A model that can be run again and again on the same inputs."""

    def __init__(self, subject: Subject, dtype: str | None, precision: Precision) -> None:
        """Prepare a model, which is copied; in evaluation mode.

        Args:
            dtype: what parameters and inputs are cast to; None leaves them.
            precision: of products, see `parity.measure.precision`.
        """
        training = getattr(subject.model, "training", False)
        self.notes: tuple[str, ...] = (TRAINING,) if training else ()
        model = _watchable(subject).eval()
        self._dtype = getattr(torch, dtype) if dtype else None
        self._model: nn.Module = model.to(self._dtype) if dtype else model
        self._args = visit_arrays(subject.args, "in", _is_any_array, self._input)
        self._kwargs = visit_arrays(dict(subject.kwargs), "in", _is_any_array, self._input)
        self._precision: Precision = precision

    def run(self, out: Path, *, nudge: int | None = None) -> None:
        """Record one run as a trace at `out`.

        Args:
            nudge: move every parameter and input by one unit in the last place; the seed.
        """
        model, args, kwargs = self._model, self._args, self._kwargs
        if nudge is not None:
            model = copied(model)
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    parameter.copy_(from_numpy(nudged(to_numpy(parameter), nudge, name)))
            move = lambda port, x: from_numpy(nudged(to_numpy(x), nudge, port))  # noqa: E731
            args = visit_arrays(args, "in", is_array, move)
            kwargs = visit_arrays(kwargs, "in", is_array, move)
        model.zero_grad(set_to_none=True)
        model.requires_grad_(True)
        framework = Torch(model)
        with torch_at(self._precision):
            writer = Writer(
                out, framework="torch", versions=framework.versions(), precision=framework.precision()
            )
            with Recorder(writer, framework, None) as trace, trace.step():
                for name, value in (*((str(i), x) for i, x in enumerate(args)), *kwargs.items()):
                    if is_array(value):
                        trace.log("batch", value, path=name)
                port, output = main_output(model(*args, **kwargs), is_array)
                weights = torch.from_numpy(cotangent(tuple(output.shape))).to(output.dtype)
                loss = (output * weights.to(output.device)).sum()
                trace.log("loss", loss, port=port)
                if loss.requires_grad:
                    loss.backward()

    def _input(self, port: str, value: Any) -> torch.Tensor:
        tensor = from_numpy(np.asarray(value)) if not is_array(value) else value.detach().clone()
        return tensor.to(self._dtype) if self._dtype and tensor.is_floating_point() else tensor


def _is_any_array(value: Any) -> bool:
    return is_array(value) or isinstance(value, np.ndarray)


def _watchable(subject: Subject) -> nn.Module:
    """A copy of the model that takes hooks."""
    model = getattr(subject.model, "_orig_mod", subject.model)  # of torch.compile
    if type(model).__name__ == "ExportedProgram":
        model = model.module()
    if isinstance(model, torch.jit.ScriptModule):
        return Scripted(model)
    if isinstance(model, nn.Module):
        return copied(model)
    return Function(model, subject.variables)
