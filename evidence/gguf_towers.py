"""Vision towers in GGUF, written by llama.cpp's library from transformers' own, and read by both twins.

    python -m evidence.gguf_towers [--write docs/gguf.md] [--record]

Needs the package gguf, whose writer and whose table of names llama.cpp's converter uses. Exit status 1
if an error is above 1e-12. `--record` keeps the files for the suite.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from parity.porting.reading.checkpoint import read_checkpoint
from tests.support.gguf_towers import TOWERS, Tower, build, errors, path_of
from vit_config.errors import first_line

LIMIT = 1e-12
INTRODUCTION = """# Vision towers of llama.cpp

For those whose tower is in a GGUF file (`mmproj`).

`parity convert mmproj.gguf tower.safetensors --to parity` reads the floating-point types (F32, F16,
BF16) of plain CLIP and SigLIP towers; quantised files and other towers are refused by name. Such files
are not written. LLaVA's lack CLIP's last block and norm, which LLaVA never uses; transformers' class has
them.

Written by `python -m evidence.gguf_towers --write docs/gguf.md` on {day}, with gguf {gguf} and
transformers {transformers}. Each tower is transformers' own, built tiny, and written by the library and
the table of names of llama.cpp's converter. `error` is the largest relative difference between the
tokens that it makes of images and those of both twins, in float64.

| tower | projector | type | dialect | error |
|---|---|---|---|---|
"""


def write(path: Path, model: Any, tower: Tower) -> None:
    """Write a tower as llama.cpp's converter does."""
    import gguf  # pyright: ignore[reportMissingImports]

    cfg, names = model.config, gguf.TensorNameMap(gguf.MODEL_ARCH.MMPROJ, model.config.num_hidden_layers)
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(tower.projector)
    writer.add_vision_image_size(cfg.image_size)
    writer.add_vision_patch_size(cfg.patch_size)
    writer.add_vision_embedding_length(cfg.hidden_size)
    writer.add_vision_feed_forward_length(cfg.intermediate_size)
    writer.add_vision_block_count(cfg.num_hidden_layers)
    writer.add_vision_head_count(cfg.num_attention_heads)
    writer.add_vision_image_mean([0.5] * 3)
    writer.add_vision_image_std([0.5] * 3)
    writer.add_vision_attention_layernorm_eps(cfg.layer_norm_eps)
    if cfg.hidden_act != "quick_gelu":
        writer.add_vision_use_gelu(True)
    for name, tensor in model.state_dict().items():
        whole = f"vision_tower.vision_model.{name.removeprefix('vision_model.')}"
        spelled = names.get_name(whole, try_suffixes=(".weight", ".bias"))
        if "post_layernorm" in name and not tower.norm:
            continue
        if tower.swapped and ".ffn_" in spelled:
            first, second = (
                (".ffn_up.", ".ffn_down.") if ".ffn_up." in spelled else (".ffn_down.", ".ffn_up.")
            )
            spelled = spelled.replace(first, second)
        kind = gguf.GGMLQuantizationType[tower.type if tensor.ndim > 1 else "F32"]
        writer.add_tensor(spelled, gguf.quantize(tensor.float().numpy(), kind), raw_dtype=kind)
    writer.add_tensor("mm.0.weight", model.config.layer_norm_eps * tensor.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> int:
    """Make the table; the exit status."""
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--write", type=Path, default=None)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    versions = {name: version(name) for name in ("gguf", "transformers")}
    lines, worst = [INTRODUCTION.format(day=date.today(), **versions)], 0.0
    with tempfile.TemporaryDirectory() as folder:
        for name, tower in TOWERS.items():
            path = path_of(name) if arguments.record else Path(folder) / "mmproj.gguf"
            model, tokens = build(name)
            write(path, model, tower)
            error = max(errors(path, tokens, Path(folder) / "own.safetensors").values())
            dialect = read_checkpoint(path).dialect.name
            lines.append(f"| {name} | {tower.projector} | {tower.type} | {dialect} | {error:.0e} |\n")
            print(lines[-1], end="", flush=True)
            worst = max(worst, error)
    if arguments.write:
        arguments.write.write_text("".join(lines), encoding="utf-8")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
