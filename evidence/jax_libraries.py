"""Libraries of JAX and Keras: their own model to a file, to both twins, and back into their own class.

    PYTHONPATH=.:BONSAI:JIMM KERAS_BACKEND=jax python -m evidence.jax_libraries \
        [--write docs/jax_libraries.md] [--trees tests/support/jax_trees.json]

BONSAI and JIMM are checkouts of jax-ml/bonsai and of pythoncrazy/jimm (its `src`), which no index has;
keras-hub and equimo are installed. Each model is built tiny, drawn anew in float64 and saved as its
users do. Bonsai's DINOv3 turns queries and keys in bfloat16; here it is run with float64 in its place.
What is left are parts that the libraries compute in float32. Exit status 1 if an error is above 1e-6.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from flax import nnx, traverse_util

from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import images_for, twin_logits
from tests.support.tiny import error
from vit_config import Rope
from vit_config.errors import first_line

LIMIT = 1e-6
INTRODUCTION = """# Libraries of JAX and Keras

For those whose Vision Transformer is of bonsai, Equimo, jimm or KerasHub.

Written by `python -m evidence.jax_libraries --write docs/jax_libraries.md` on {day}, with bonsai
at 3628425 (2026-03-27), jimm at 73f4bfb (2025-07-19), equimo {equimo}, keras {keras} and keras-hub
{keras_hub}. Each model is the library's own class, built tiny, drawn anew and saved as its users save
it. `out` is the largest relative difference between what it makes of images and what both twins make
of them, in float64 but for what the library computes in float32; `back` is that of the same class after
it loaded what was written back.

| model | saved as | dialect | out | back |
|---|---|---|---|---|
"""
Run = Callable[[np.ndarray], np.ndarray]
"""Images (B, H, W, C) to tokens, a pooled vector or logits."""


class Case(NamedTuple):
    """A model of a library."""

    name: str
    saved_as: str
    save: Callable[[Path], Path]
    run: Run
    reload: Callable[[Path], Run]
    """Loads the folder that was written back into a fresh model."""
    given: Mapping[str, Any]


def _nnx(name: str, model: Any, call: Callable[[Any, Any], Any], under: str = "", **given: Any) -> Case:
    state, rng = nnx.state(model, nnx.Param), np.random.default_rng(0)
    for path, variable in nnx.to_flat_state(state):
        gain = float(path[-1] in ("scale", "lambda1"))
        variable.set_value(jnp.asarray(gain + 0.2 * rng.standard_normal(variable.get_value().shape)))
    nnx.update(model, state)
    model.eval()

    def save(folder: Path) -> Path:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder / "state", nnx.to_pure_dict(state))
        return folder / "state"

    def reload(folder: Path) -> Run:
        read = traverse_util.unflatten_dict(dict(np.load(folder / "model.npz")), sep="/")
        pure = nnx.to_pure_dict(state)
        again = nnx.restore_int_paths({**pure, under: read} if under else _completed(pure, read))
        for _, variable in nnx.to_flat_state(state):
            variable.set_value(jnp.full_like(variable.get_value(), 7))  # so that nothing is left
        nnx.replace_by_pure_dict(state, again)
        nnx.update(model, state)
        return lambda images: np.asarray(call(model, jnp.asarray(images)))

    return Case(name, "Orbax", save, lambda images: np.asarray(call(model, jnp.asarray(images))),
                reload, given)  # fmt: skip


def _completed(pure: Any, read: Any) -> Any:
    """A tree with what the other has beside it: a mask token, which no encoder uses."""
    if not isinstance(pure, dict):
        return read
    return {key: _completed(each, read[str(key)]) if str(key) in read else each
            for key, each in pure.items()}  # fmt: skip


def _bonsai() -> Iterator[Case]:
    from bonsai.models.dinov3 import modeling as dinov3  # pyright: ignore[reportMissingImports]
    from bonsai.models.vit import modeling as vit  # pyright: ignore[reportMissingImports]

    cfg = vit.ModelConfig((12, 12), (4, 4), 3, 20, 0.0, 0.0, 5, 24, 1e-3, 2, 3)
    model = vit.ViTClassificationModel(cfg, rngs=nnx.Rngs(0))
    yield _nnx("bonsai's ViT", model, lambda model, x: model(x, rngs=None), norm_eps=1e-3)
    wide = {"float32": jnp.float64, "bfloat16": jnp.float64}
    dinov3.jnp = SimpleNamespace(**{**{name: getattr(jnp, name) for name in dir(jnp)}, **wide})
    for gated, act in ((False, "gelu"), (True, "silu")):
        cfg = dinov3.ModelConfig(
            patch_size=(4, 4), hidden_size=24, intermediate_size=20, num_hidden_layers=2,
            num_attention_heads=3, image_size=12, num_register_tokens=2, use_gated_mlp=gated,
            hidden_act=act, rope_theta=50.0,
        )  # fmt: skip
        yield _nnx(
            f"bonsai's DINOv3, {act}",
            dinov3.Dinov3ViTModel(cfg, rngs=nnx.Rngs(0)),
            lambda model, x: model(x.transpose(0, 3, 1, 2))["pooler_output"],
            norm_eps=1e-5, num_heads=3, image_size=(12, 8), act={"gelu": "gelu_tanh"}.get(act, act),
            rope=Rope(kind="centered", theta=50.0, pairs="half"),
        )  # fmt: skip


def _equimo() -> Iterator[Case]:
    import equinox as eqx  # pyright: ignore[reportMissingImports]
    from equimo.io import load_weights, save_model  # pyright: ignore[reportMissingImports]
    from equimo.models.vit import VisionTransformer  # pyright: ignore[reportMissingImports]

    plain = {"img_size": 12, "in_channels": 3, "dim": 24, "patch_size": 4, "num_heads": [3],
             "depths": [2], "num_classes": 5}  # fmt: skip

    def run(model: Any) -> Run:
        return lambda images: np.stack(
            [model(jnp.asarray(each).transpose(2, 0, 1), inference=True) for each in images]
        )

    def case(name: str, packed: bool, **changes: Any) -> Case:
        arguments = {**plain, **changes}
        model, rng = VisionTransformer(**arguments, key=jax.random.key(0)), np.random.default_rng(0)

        def is_weight(path: Any, leaf: Any) -> bool:
            return eqx.is_array(leaf) and "freqs" not in jax.tree_util.keystr(path)

        def draw(path: Any, leaf: Any) -> Any:
            if not is_weight(path, leaf):
                return leaf
            gain = float(leaf.ndim == 1 and "bias" not in jax.tree_util.keystr(path))
            return jnp.asarray(gain + 0.2 * rng.standard_normal(leaf.shape))

        model = jax.tree_util.tree_map_with_path(draw, model)

        def save(folder: Path) -> Path:
            path = folder / ("model.tar.lz4" if packed else "model")
            save_model(path, model, arguments, compression=packed)
            return path

        def reload(folder: Path) -> Run:
            read = json.loads((folder / "metadata.json").read_text())["model_config"]
            fresh = VisionTransformer(**read, key=jax.random.key(1))
            wide = jax.tree_util.tree_map_with_path(  # its layer scales are float32 whatever is asked
                lambda path, leaf: leaf.astype(float) if is_weight(path, leaf) else leaf, fresh
            )
            return run(load_weights(wide, path=folder))

        return Case(name, ".tar.lz4" if packed else "folder", save, run(model), reload, {})

    yield case("Equimo's ViT", True, reg_tokens=0, global_pool="token", act_layer="exactgelu")
    yield case("Equimo's ViT, registers, groups of blocks", False, depths=[1, 2], num_heads=[3, 3],
               qk_norm=True, init_values=0.1, use_mask_token=True, drop_path_rate=0.1)  # fmt: skip
    yield case("Equimo's ViT, patches alone, no biases", False, class_token=False, reg_tokens=0,
               global_pos_embed_cls=False, qkv_bias=False, proj_bias=False, ffn_bias=False,
               num_classes=0, eps=1e-3)  # fmt: skip
    yield case("Equimo's ViT, packed gate", True, ffn_layer="swiglufused", mlp_ratio=3.5,
               global_pos_embed_reg=True, global_pool="token")  # fmt: skip
    yield case("Equimo's ViT, rotary positions", False, num_heads=3, use_global_pos_embed=False,
               use_local_pos_embed=True, dynamic_img_size=True, ffn_layer="swiglu",
               local_pos_embed_config_patch={"strategy": "period", "base": 50.0, "dtype": "float64",
                                             "periods_dtype": "float64"},
               untie_global_and_local_cls_norm=True, init_values=0.1, num_classes=0,
               global_pool="token")  # fmt: skip


def _jimm() -> Iterator[Case]:
    from jimm.models.siglip import SigLIP  # pyright: ignore[reportMissingImports]

    model = SigLIP(12, 2, 64, 4, 5, 7, 64, 1, 1)
    yield _nnx("jimm's SigLIP", model, lambda model, x: model.encode_image(x), "vision_model")


def _keras() -> Iterator[Case]:
    import keras  # pyright: ignore[reportMissingImports]
    from keras_hub.models import (  # pyright: ignore[reportMissingImports]
        DINOV2Backbone,
        DINOV3Backbone,
        SigLIPBackbone,
        SigLIPTextEncoder,
        SigLIPVisionEncoder,
        ViTBackbone,
        ViTImageClassifier,
    )

    keras.config.set_floatx("float64")

    def backbone(**changes: Any) -> Any:
        sizes = {"image_shape": (12, 8, 3), "patch_size": (4, 4), "num_layers": 2, "num_heads": 5,
                 "hidden_dim": 20, "mlp_dim": 24, "layer_norm_epsilon": 1e-3}  # fmt: skip
        return ViTBackbone(**{**sizes, **changes})

    def case(name: str, saved_as: str, model: Any, **given: Any) -> Case:
        rng = np.random.default_rng(0)
        for weight in model.weights:
            if weight.dtype.startswith("float"):
                gain = weight.path.endswith(("gamma", "lambda1"))
                weight.assign(gain + 0.2 * rng.standard_normal(weight.shape))
        tower = getattr(model, "vision_encoder", model)

        def save(folder: Path) -> Path:
            path = folder / ("preset" if saved_as == "preset" else f"model{saved_as}")
            {"preset": model.save_to_preset, ".keras": model.save, ".weights.h5": model.save_weights}[
                saved_as
            ](str(path))
            return path

        def reload(folder: Path) -> Run:
            if hasattr(type(tower), "from_preset") and not isinstance(model, ViTImageClassifier):
                again = type(tower).from_preset(str(folder))
            else:
                config = json.loads((folder / "config.json").read_text())
                again = keras.saving.deserialize_keras_object(config)
                again.load_weights(str(folder / "model.weights.h5"))
            return lambda images: np.asarray(again(images))

        return Case(name, saved_as, save, lambda images: np.asarray(tower(images)), reload, given)

    plain = {"use_class_token": False, "use_mha_bias": False, "use_mlp_bias": False,
             "use_patch_bias": False}  # fmt: skip
    yield case("KerasHub's ViT", "preset", backbone())
    yield case("KerasHub's ViT, no biases", ".keras", backbone(**plain))
    yield case("KerasHub's classifier", "preset", ViTImageClassifier(backbone(), num_classes=3))
    yield case(
        "KerasHub's classifier, mean", ".weights.h5",
        ViTImageClassifier(backbone(num_layers=1), num_classes=3, pooling="gap"),
        norm_eps=1e-3, image_size=(12, 8), pool="mean", head_activation="none",
    )  # fmt: skip
    yield case(
        "KerasHub's classifier, hidden layer", ".keras",
        ViTImageClassifier(backbone(), num_classes=3, intermediate_dim=6, activation="softmax"),
    )  # fmt: skip
    square = {"patch_size": 4, "num_layers": 2, "num_heads": 3, "hidden_dim": 24,
              "intermediate_dim": 20, "image_shape": (12, 12, 3)}  # fmt: skip
    sizes = {**square, "position_embedding_shape": (12, 12, 3)}
    yield case("KerasHub's DINOv2", "preset", DINOV2Backbone(**sizes))
    yield case(
        "KerasHub's DINOv2, registers, table of another size", ".keras",
        DINOV2Backbone(**{**sizes, "position_embedding_shape": (20, 20, 3)}, num_register_tokens=2,
                       antialias_in_interpolation=True),
    )  # fmt: skip
    yield case(
        "KerasHub's DINOv2, gate, no mask token", ".weights.h5",
        DINOV2Backbone(**sizes, use_swiglu_ffn=True, use_mask_token=False), image_size=(12, 12),
    )  # fmt: skip
    oblong = {**square, "image_shape": (12, 8, 3)}
    yield case("KerasHub's DINOv3", "preset", DINOV3Backbone(**oblong, use_key_bias=False))
    yield case(
        "KerasHub's DINOv3, gate, no biases of the MLP", ".keras",
        DINOV3Backbone(**oblong, use_gated_mlp=True, hidden_activation="silu", rope_theta=50.0,
                       num_register_tokens=2, use_mlp_bias=False),
    )  # fmt: skip
    text = {"vocabulary_size": 30, "embedding_dim": 24, "hidden_dim": 24, "num_layers": 1,
            "num_heads": 3, "intermediate_dim": 20, "max_sequence_length": 7}  # fmt: skip
    whole = SigLIPBackbone(SigLIPVisionEncoder(**square), SigLIPTextEncoder(**text))
    yield case("KerasHub's SigLIP, beside its text", "preset", whole)
    yield case("KerasHub's SigLIP, exact GELU", ".keras",
               SigLIPVisionEncoder(**square, intermediate_activation="gelu"))  # fmt: skip


def _line(case: Case, folder: Path) -> tuple[Checkpoint, float, float]:
    source = read_checkpoint(case.save(folder), given=case.given)
    convert(source, to="parity", out=folder / "own.safetensors")
    images = images_for(source.config)
    expected = case.run(images.transpose(0, 2, 3, 1))
    pooled = expected
    if expected.ndim == 3:  # a backbone's tokens
        pooled = expected[:, 0] if source.config.pool == "class" else expected.mean(1)
    out = max(error(each, pooled) for each in twin_logits(folder / "own.safetensors", images).values())
    convert(folder / "own.safetensors", to=source.dialect.name, out=folder / "back")
    back = error(case.reload(folder / "back")(images.transpose(0, 2, 3, 1)), expected)
    return source, out, back


def main() -> int:
    """Make the table; the exit status."""
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--write", type=Path, default=None)
    parser.add_argument("--trees", type=Path, default=None)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    lines, trees, worst = [], {}, 0.0
    for cases in (_bonsai, _equimo, _jimm, _keras):
        for case in cases():
            with tempfile.TemporaryDirectory() as folder:
                source, out, back = _line(case, Path(folder))
            lines.append(
                f"| {case.name} | {case.saved_as} | {source.dialect.name} | {out:.0e} | {back:.0e} |"
            )
            print(lines[-1], flush=True)
            worst = max(worst, out, back)
            trees[case.name] = {
                "schema": json.loads(source.config.to_json()),
                "dialect": source.dialect.name,
                "names": {name: each.shape for name, each in source.tensors.items()},
            }
    if arguments.write:
        versions = {name: version(name.replace("_", "-")) for name in ("equimo", "keras", "keras_hub")}
        text = INTRODUCTION.format(day=date.today(), **versions) + "\n".join(lines) + "\n"
        arguments.write.write_text(text, encoding="utf-8")
    if arguments.trees:
        arguments.trees.write_text(json.dumps(trees) + "\n", encoding="utf-8")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
