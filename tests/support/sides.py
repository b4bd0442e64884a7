"""The two sides of a comparison, made in this process."""

from __future__ import annotations

import json
import threading
from typing import Any

import jax

import vit_jax
import vit_torch
from parity.measure.redraw import branch_norms, random_batch, redraw
from parity.verifier.diff import InProcess, subject_of
from parity.verifier.diff.build import Order, build
from parity.verifier.diff.server import Server
from vit_config import ViTConfig
from vit_config.parameters import parameters


def sides(cfg: ViTConfig, *, dtype: str = "float64") -> tuple[InProcess, InProcess]:
    """The JAX twin and the PyTorch twin of a schema, on the same weights and images."""
    norms = branch_norms(cfg)
    arrays = {
        name: redraw(name, spec.kind, spec.shape, 0, branch_norms=norms)
        for name, spec in parameters(cfg).items()
    }
    images = random_batch(cfg, 2, seed=0).images  # (B, H, W, C)
    with jax.enable_x64(True):
        first = vit_jax.from_arrays(cfg, arrays)
    second = vit_torch.from_arrays(cfg, arrays)
    return (
        InProcess(subject_of("jax", (first, images)), dtype=dtype),
        InProcess(subject_of("torch", (second, images.transpose(0, 3, 1, 2))), dtype=dtype),
    )


def port(name: str, *, dtype: str = "float64") -> tuple[InProcess, InProcess]:
    """The model of docs/port.py and its port."""
    orders = Order(name="docs/port.py:original"), Order(name=f"docs/port.py:{name}")
    first, second = (InProcess(build(order), dtype=dtype) for order in orders)
    return first, second


_ONE_AT_A_TIME = threading.Lock()


class ServedHere:
    """In place of `subprocess.Popen`: serves a side, without the imports of a new process."""

    def __init__(self, command: list[str], **options: Any) -> None:
        assert command[-1] == "parity.verifier.diff.server"
        self.stdin = self.stdout = self
        self._server = Server()
        self._answers: list[str] = []

    def write(self, line: str) -> None:
        """Answer a question."""
        with _ONE_AT_A_TIME:  # both sides draw their weights from one stream
            self._answers.append(json.dumps(self._server.answer(json.loads(line))) + "\n")

    def readline(self) -> str:
        """The answer."""
        return self._answers.pop()

    def flush(self) -> None:
        """Nothing is held back."""

    close = terminate = wait = flush
