"""Perception Encoder by its authors' names: what timm's own filter makes of the same file."""

import json

import pytest
import torch

from evidence.timm_sweep import peer
from parity.porting.models.files import load
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import images_for, twin_logits
from tests.support.tiny import error
from vit_config import preset
from vit_config.errors import UnstatedError, WeightsError

WIDTH, HEADS, GIVEN = 32, 4, {"num_heads": 4, "pool_num_heads": 8}


def drawn(core, *, token=True, scale=False, mlp=128, width=WIDTH, depth=2, patch=4, grid=3, out=7):
    """A state dict by the names of core/vision_encoder/pe.py, in float64."""
    generator = torch.Generator().manual_seed(0)
    sizes: dict[str, tuple[int, ...]] = {"conv1.weight": (width, 3, patch, patch)}

    def layer(name, out, *inputs):
        sizes.update({f"{name}weight": (out, *inputs), f"{name}bias": (out,)})

    sizes |= {"class_embedding": (width,)} if token else {}
    sizes["positional_embedding"] = (token + grid * grid, width)
    for name in ("ln_pre.", *(["ln_post.", "attn_pool.layernorm."] if core else [])):
        layer(name, width)
    for i in range(depth):
        block = f"transformer.resblocks.{i}."
        layer(f"{block}ln_1.", width)
        layer(f"{block}ln_2.", width)
        layer(f"{block}attn.in_proj_", 3 * width, width)
        layer(f"{block}attn.out_proj.", width, width)
        layer(f"{block}mlp.c_fc.", mlp, width)
        layer(f"{block}mlp.c_proj.", width, mlp)
        sizes |= {f"{block}ls_{n}.gamma": (width,) for n in (1, 2) if scale}
    if core:
        sizes |= {"attn_pool.probe": (1, 1, width), "proj": (width, out)}
        layer("attn_pool.attn.in_proj_", 3 * width, width)
        layer("attn_pool.attn.out_proj.", width, width)
        layer("attn_pool.mlp.c_fc.", 4 * width, width)
        layer("attn_pool.mlp.c_proj.", width, 4 * width)
    return {
        name: float("ln" in name and name.endswith("weight"))
        + 0.2 * torch.randn(size, generator=generator, dtype=torch.float64)
        for name, size in sizes.items()
    }


def by_timm(state, core, *, token=True, scale=False, mlp=128):
    """timm's model of a state dict, which its own filter renames."""
    rename = peer.import_timm().models.eva.checkpoint_filter_fn

    pool = {"attn_pool_num_heads": 8, "attn_pool_mlp_ratio": 4.0} if core else {}
    model = peer.create_float64(
        f"vit_pe_{'core' if core else 'spatial'}_base_patch16_{224 if core else 512}",
        img_size=12, patch_size=4, embed_dim=WIDTH, depth=2, num_heads=HEADS, class_token=token,
        mlp_ratio=mlp / WIDTH, ref_feat_shape=(3, 3), rope_grid_offset=float(token),
        num_classes=7 if core else 0, init_values=0.1 if scale else None, **pool,
    )  # fmt: skip
    model.load_state_dict(rename(dict(state), model), strict=True)
    return model.eval()


@pytest.mark.parametrize(
    ("core", "options"),
    [
        (True, {}),
        (True, {"token": False, "mlp": 176}),  # PE-Core-G14-448
        (False, {}),
        (False, {"token": False, "scale": True}),
    ],
)
def test_it_is_what_timm_makes_of_it_and_is_written_back(core, options, tmp_path):
    state = drawn(core, **options)
    text = {"text_projection": torch.zeros(4, 7), "transformer.resblocks.0.ln_1.weight": torch.ones(4)}
    host = {**{f"visual.{name}": each for name, each in state.items()}, **text}
    torch.save(host if core else state, tmp_path / "pe.pt")
    given = GIVEN if core else {"num_heads": 4}
    source = read_checkpoint(tmp_path / "pe.pt", given=given)
    assert source.dialect.name == f"perception-{'core' if core else 'tokens'}"
    convert(source, to="parity", out=tmp_path / "own.safetensors")
    images, model = images_for(source.config), by_timm(state, core, **options)
    with torch.no_grad(), peer.float64():
        tokens = model.forward_features(torch.from_numpy(images))
        pooled = model.forward_head(tokens) if core else tokens[:, model.num_prefix_tokens :].mean(1)
        expected = pooled.numpy()
    for each in twin_logits(tmp_path / "own.safetensors", images).values():
        assert error(each, expected) < 1e-12
    convert(tmp_path / "own.safetensors", to=source.dialect.name, out=tmp_path / "back")
    again = torch.load(tmp_path / "back" / "model.pt", weights_only=True)
    assert again.keys() == state.keys()
    for name, each in state.items():
        torch.testing.assert_close(again[name], each, rtol=0, atol=0)


def test_other_images_have_whole_rows_and_columns_and_linear_positions(tmp_path):
    """As the authors' code; timm's model brings the rows of another grid to those of pretraining."""
    torch.save(drawn(True), tmp_path / "pe.pt")
    cfg = read_checkpoint(tmp_path / "pe.pt", given=GIVEN).config
    assert cfg.dynamic_image_size
    assert cfg.pos_embed_resize == "bilinear"
    assert cfg.rope is not None
    assert (cfg.rope.reference_grid, cfg.rope.offset, cfg.rope.axes) == (None, 1.0, "wh")
    model = load(tmp_path / "pe.pt", framework="torch", given=GIVEN).model
    assert model(torch.zeros(1, 3, 16, 20).double()).logits.shape == (1, 7)


def test_it_asks_for_the_heads_and_is_never_clip(tmp_path):
    torch.save({f"visual.{name}": each for name, each in drawn(True).items()}, tmp_path / "pe.pt")
    with pytest.raises(UnstatedError, match="cannot infer num_heads, pool_num_heads"):
        read_checkpoint(tmp_path / "pe.pt")
    with pytest.raises(WeightsError):
        read_checkpoint(tmp_path / "pe.pt", dialect="open-clip", given=GIVEN)


def test_a_preset_of_timm_answers_everything(tmp_path):
    name = "vit_pe_core_tiny_patch16_384"
    torch.save(drawn(True, mlp=768, width=192, depth=12, patch=16, grid=24, out=512), tmp_path / "pe.pt")
    source = read_checkpoint(tmp_path / "pe.pt", like=name)
    assert source.config == preset(name).replace(head_bias=False)
    convert(source, to="timm", out=tmp_path / "timm")
    config = json.loads((tmp_path / "timm" / "config.json").read_text())
    assert config["architecture"] == name
