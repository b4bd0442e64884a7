"""Programs that lie in files: an ONNX graph, an archive of torch.export."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from parity.exporting.formats import ABOUT
from parity.exporting.subject import IMAGE_EMBEDS, TEXT_EMBEDS
from parity.measure.redraw import random_images
from parity.porting.formats.suffixes import PROGRAMS
from parity.verifier.programs.archives import find_code
from vit_config import ConfigError, InputError, MissingFileError, ViTConfig
from vit_config.files.foreign import parse_json
from vit_config.files.held import check_held
from vit_config.files.lasting import lasting
from vit_config.files.stored import guarded
from vit_config.terminal import muted, quiet


def is_program(name: Any) -> bool:
    """Return whether a name is that of a file that holds a program."""
    return isinstance(name, str | Path) and str(name).endswith(tuple(PROGRAMS.values()))


def read_program(path: str | Path, *, trusted: bool = False) -> Any:
    """Read the program in a file as a `torch.nn.Module`.

    Args:
        trusted: open an archive of torch.export even if that may run what is in it.

    Raises:
        MissingFileError, WeightsError, ConfigError: it is missing, damaged, of StableHLO, or holds an
            operator that is not known here.
    """
    return _read(Path(path), trusted)[0]


def program_as_twin(path: str | Path) -> Any:
    """Read the program in a file; where it says that its output ``tokens`` is a twin's, the twin's two
    outputs take its place.

    Raises:
        MissingFileError, WeightsError, ConfigError: see `read_program`.
    """
    module, _, about = _read(Path(path))
    return _with_own_outputs(Path(path), module, about)


def program_with_images(
    path: str | Path, batch_size: int, seed: int, *, trusted: bool = False
) -> tuple[Any, np.ndarray]:
    """Read the program in a file, as `program_as_twin`, with the images that presets and checkpoints are
    given: (B, C, H, W).

    Args:
        trusted: see `read_program`.

    Raises:
        InputError: its input is no batch of prepared images of one size.
        MissingFileError, WeightsError, ConfigError: see `read_program`.
    """
    module, shape, about = _read(Path(path), trusted)
    if len(shape) != 4 or not all(shape[1:]):
        raise InputError(
            f"{path}: its input is no batch of prepared images of one size, such as export writes with"
            " input = float32; from Python, give its inputs beside it, as (FILE, inputs)"
        )
    stated, channels, height, width = shape
    images = random_images((stated or batch_size, height, width, channels), seed)
    return _with_own_outputs(Path(path), module, about), images.transpose(0, 3, 1, 2)


def _read(path: Path, trusted: bool = False) -> tuple[Any, list[int], dict[str, Any]]:
    """Return a program, the shape of its one input with 0 for each free length, and its description."""
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file")
    if path.suffix == PROGRAMS["stablehlo"]:
        raise ConfigError(
            f"{path}: operations of StableHLO are not followed; compare the function that it was"
            " exported from, as FILE.py:FUNCTION, or export the same model by `parity export MODEL"
            " m.onnx --to onnx` and compare that"
        )
    if path.suffix == PROGRAMS["onnx"]:
        from parity.exporting.onnx_graph import graph_module

        module = graph_module(path)
        shapes = [each.type.tensor_type.shape.dim for each in module.inputs]
        shape = [dim.dim_value for dim in shapes[0]] if len(shapes) == 1 else []
        return module, shape, _about(path, module.metadata.get(ABOUT))
    import torch

    from parity.verifier.programs.aten.generated import name_lines_inside

    path = lasting(path)
    if not trusted and (code := find_code(path)):
        raise ConfigError(
            f"{path}: {code}, which torch.export may run as it opens the file; if you trust whom it is"
            " from, give --run-programs; from Python, load it by torch.export"
        )
    extra = {ABOUT: ""}
    with guarded(path, "archive of torch.export"), quiet("torch.export"), muted():
        check_held(path)
        with path.open("rb") as file:  # the same bytes are searched and run
            content = io.BytesIO(file.read())
        path.check()
        program = torch.export.load(content, extra_files=extra)
    given = [each for each in (program.example_inputs or ((),))[0] if isinstance(each, torch.Tensor)]
    shape = list(given[0].shape) if len(given) == 1 and given[0].is_floating_point() else []
    module = program.module()
    name_lines_inside(str(path.resolve()), module)
    return module, shape, _about(path, extra[ABOUT])


def _about(path: Path, text: str | None) -> dict[str, Any]:
    """Return what a file says of its program; nothing where it does not say it."""
    with guarded(path, f"description in {ABOUT}"):
        about = parse_json(text or "{}")
        if not isinstance(about, dict):
            raise ValueError("is no JSON object")
        return about


def _with_own_outputs(path: Path, module: Any, about: dict[str, Any]) -> Any:
    """Return a program with a twin's outputs, given what its file says of it."""
    with guarded(path, f"description in {ABOUT}"):
        if "tokens" not in (outputs := about.get("outputs", ())):
            return module
        texts = about["input"]["layout"] == "BN"  # a text tower returns its tokens as one
        prefix = 0 if texts else ViTConfig.from_json(json.dumps(about["schema"])).num_prefix_tokens
        embedded = "logits" if "pooled" in outputs else "pooled"
        own = {TEXT_EMBEDS: "embeddings", IMAGE_EMBEDS: embedded}

    def split(outputs: dict[str, Any]) -> dict[str, Any]:
        outputs = {own.get(name, name): each for name, each in outputs.items()}
        if texts:
            return outputs
        tokens = outputs.pop("tokens")
        return {**outputs, "prefix_tokens": tokens[:, :prefix], "patch_tokens": tokens[:, prefix:]}

    import torch

    class AsTwin(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.program = module

        def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
            return split(self.program(images))

    made = AsTwin()
    made.training = False  # a module of torch.export raises when it is told
    return made
