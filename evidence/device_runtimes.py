"""What runtimes of devices compute of an exported ViT-Ti/16, beside PyTorch: docs/serving.md.

    pip install openvino ai-edge-litert litert-torch     # those that are there are tried
    python -m evidence.device_runtimes

The weights are drawn, the picture is random. Errors are of the logits, relative to their largest.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

import parity

Run = Callable[[Path, np.ndarray], np.ndarray]
"""Returns logits, given the folder of both files and a picture (1, C, H, W)."""


def _onnxruntime(folder: Path, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "vit.onnx", providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["logits"], {"images": x})[0])


def _openvino(folder: Path, x: np.ndarray, **options: str) -> np.ndarray:
    import openvino  # pyright: ignore[reportMissingImports]

    return openvino.Core().compile_model(folder / "vit.onnx", "CPU", options)({"images": x})["logits"]


def _litert(folder: Path, x: np.ndarray) -> np.ndarray:
    import litert_torch  # pyright: ignore[reportMissingImports]
    from ai_edge_litert.interpreter import Interpreter  # pyright: ignore[reportMissingImports]

    program = torch.export.load(folder / "vit.pt2").module()
    litert_torch.convert(program, (torch.from_numpy(x),)).export(str(folder / "vit.tflite"))
    return Interpreter(str(folder / "vit.tflite")).get_signature_runner()(args_0=x)["logits"]


def _exact(folder: Path, x: np.ndarray) -> np.ndarray:
    return _openvino(folder, x, INFERENCE_PRECISION_HINT="f32")


RUNTIMES: dict[str, tuple[str, str, Run]] = {
    "ONNX Runtime": ("onnxruntime", "onnxruntime", _onnxruntime),
    "OpenVINO in float32": ("openvino", "openvino", _exact),
    "OpenVINO as it comes": ("openvino", "openvino", _openvino),
    "LiteRT": ("litert_torch", "ai-edge-litert", _litert),
}
"""The module and the distribution that each needs, and how it is run."""


def rows(folder: Path) -> Iterator[str]:
    """Export the model, and yield a line for each runtime that is installed."""
    model = parity.create_model("vit_tiny_patch16_224", framework="torch").eval()
    parity.save(folder / "own.safetensors", model)
    own = folder / "own.safetensors"
    parity.export(own, folder / "vit.onnx", to="onnx", input="float32", batch=1)
    parity.export(own, folder / "vit.pt2", to="torch-export", input="float32", batch=1)
    x = np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)
    with torch.no_grad():
        wanted = model.logits(torch.from_numpy(x)).numpy()
    for name, (module, distribution, run) in RUNTIMES.items():
        if not find_spec(module):
            yield f"{name}: not installed"
            continue
        error = np.abs(run(folder, x) - wanted).max() / np.abs(wanted).max()
        yield f"{name} ({distribution} {version(distribution)}): {error:.1e}"


def main() -> int:
    """Print the lines."""
    formatter = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=formatter).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(Path(folder)):
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
