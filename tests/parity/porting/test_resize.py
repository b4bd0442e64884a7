"""A model's weights fitted to another image size and patch size, against timm's own models."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from tests.support.peers import import_timm
from tests.support.tiny import TINY, error
from vit_config import ConfigError, InputError, ViTConfig, WeightsError
from vit_config.numerics.resample import RULES, resample_rows
from vit_config.numerics.resize import resize_weights

pytestmark = pytest.mark.slow

timm = import_timm()

EXACT = 1e-12

# a grid of 5x3 patches, and of 7x4 after resizing to `LARGER`
CFG = TINY.replace(image_size=(35, 15), depth=2)
LARGER = (49, 20)


def draw(*shape: int) -> np.ndarray:
    """Standard normal float64 values that float32 holds exactly."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32).astype(np.float64)


def weights(cfg: ViTConfig) -> dict[str, np.ndarray]:
    """The tensors that resizing is about, and one that it is not."""
    kernel = (cfg.in_channels, *cfg.patch_size) if cfg.patch_embed == "conv" else (cfg.patch_dim,)
    arrays = {
        "patch_embed.proj.weight": draw(cfg.hidden_size, *kernel),
        "head.weight": draw(cfg.num_classes, cfg.hidden_size),
    }
    if cfg.pos_embed == "learned":
        arrays["pos_embed"] = draw(1, cfg.num_prefix_rows + cfg.num_patches, cfg.hidden_size)
    if cfg.rel_pos_bias:
        offsets = (2 * cfg.grid[0] - 1) * (2 * cfg.grid[1] - 1)
        for i in range(cfg.depth):
            arrays[f"blocks.{i}.attn.rel_pos_bias.table"] = draw(offsets + 3, cfg.num_heads) + i
    return arrays


def to_hwc(kernel: np.ndarray) -> np.ndarray:
    """A convolution's kernel as the weight of a linear layer on (row, column, channel) patches."""
    return kernel.transpose(0, 2, 3, 1).reshape(len(kernel), -1)


def to_chw(kernel: np.ndarray) -> np.ndarray:
    """A convolution's kernel as the weight of a linear layer on (channel, row, column) patches."""
    return kernel.reshape(len(kernel), -1)


@pytest.fixture
def in_double(monkeypatch):
    """timm casts to float32 for the interpolation; let it cast to float64 instead."""
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(timm.layers.patch_embed, "DTYPE_INTERMEDIATE", torch.float64)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def timm_model(cfg: ViTConfig, make: type, **options) -> Any:
    return make(
        img_size=cfg.image_size,
        patch_size=cfg.patch_size,
        in_chans=cfg.in_channels,
        embed_dim=cfg.hidden_size,
        depth=cfg.depth,
        num_heads=cfg.num_heads,
        num_classes=cfg.num_classes,
        **options,
    )


@pytest.mark.usefixtures("in_double")
@pytest.mark.parametrize(
    ("image_size", "patch_size"),
    [(LARGER, None), ((14, 25), None), (None, (5, 3)), ((36, 36), (9, 4)), ((49, 15), None)],
    ids=["larger", "smaller and larger", "smaller patches", "both", "taller"],
)
@pytest.mark.parametrize("prefix", ["all", "none"])
def test_timm_vit(image_size, patch_size, prefix):
    cfg = CFG.replace(register_tokens=2, pos_embed_prefix=prefix)
    arrays = weights(cfg)
    model = timm_model(cfg, timm.models.VisionTransformer, reg_tokens=2, no_embed_class=prefix == "none")
    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    assert not model.load_state_dict(tensors, strict=False).unexpected_keys
    model.set_input_size(img_size=image_size, patch_size=patch_size)

    new, fitted = resize_weights(
        cfg, arrays, image_size=image_size, patch_size=patch_size, patch_rule="bicubic_antialias"
    )
    assert new.grid == tuple(model.patch_embed.grid_size)
    for name, array in fitted.items():
        assert error(array, model.state_dict()[name]) < EXACT, name


@pytest.mark.usefixtures("in_double")
@pytest.mark.filterwarnings(  # what timm's interpolator makes PyTorch say
    "ignore:Using a non-tuple sequence:UserWarning", r"ignore:torch.searchsorted\(\):UserWarning"
)
@pytest.mark.parametrize("image_size", [LARGER, (14, 25), (49, 15)], ids=str)
def test_timm_beit(image_size):
    cfg = CFG.replace(rel_pos_bias=True)
    arrays = weights(cfg)
    model = timm_model(
        cfg, timm.models.Beit, use_abs_pos_emb=True, use_rel_pos_bias=True, use_shared_rel_pos_bias=False
    )
    theirs = {
        name: name.replace("rel_pos_bias.table", "relative_position_bias_table") for name in arrays
    }
    tensors = {theirs[name]: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    assert not model.load_state_dict(tensors, strict=False).unexpected_keys
    model.set_input_size(img_size=image_size)

    new, fitted = resize_weights(cfg, arrays, image_size=image_size)
    assert new == cfg.replace(image_size=image_size)
    for name, array in fitted.items():
        assert error(array, model.state_dict()[theirs[name]]) < EXACT, name
        if name.startswith("blocks."):
            np.testing.assert_array_equal(array[-3:], arrays[name][-3:])


@pytest.mark.parametrize(("kind", "flatten"), [("linear_hwc", to_hwc), ("linear_chw", to_chw)])
def test_linear_projection_is_the_convolution(kind, flatten):
    arrays = weights(CFG)
    name = "patch_embed.proj.weight"
    _, expected = resize_weights(CFG, arrays, image_size=(36, 36), patch_size=(9, 4))
    flat = {**arrays, name: flatten(arrays[name])}
    new, fitted = resize_weights(
        CFG.replace(patch_embed=kind), flat, image_size=(36, 36), patch_size=(9, 4)
    )
    assert new.patch_dim == 9 * 4 * 3
    assert error(fitted[name], flatten(expected[name])) < EXACT
    np.testing.assert_array_equal(fitted["pos_embed"], expected["pos_embed"])


@pytest.mark.parametrize("rule", RULES)
def test_every_rule(rule):
    arrays = weights(CFG)
    size = (14, 25)
    expected = resample_rows(arrays["pos_embed"][0], (5, 3), (2, 5), rule, 1)[None]
    for cfg, options in [(CFG, {"rule": rule}), (CFG.replace(pos_embed_resize=rule), {})]:
        new, fitted = resize_weights(cfg, arrays, image_size=size, **options)
        assert new == cfg.replace(image_size=size)
        np.testing.assert_array_equal(fitted["pos_embed"], expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_type_stays_and_input_too(dtype):
    cfg = CFG.replace(rel_pos_bias=True)
    arrays = {name: array.astype(dtype) for name, array in weights(cfg).items()}
    before = {name: array.copy() for name, array in arrays.items()}
    exact = {name: array.astype(np.float64) for name, array in arrays.items()}
    sizes = {"image_size": (36, 36), "patch_size": (9, 4)}
    _, expected = resize_weights(cfg, exact, **sizes)
    _, fitted = resize_weights(cfg, arrays, **sizes)
    assert list(fitted) == list(arrays)
    for name, array in fitted.items():
        assert array.dtype == dtype
        assert array.flags.c_contiguous
        assert not np.shares_memory(array, arrays[name])
        np.testing.assert_array_equal(array, expected[name].astype(dtype))  # rounded once, at the end
        np.testing.assert_array_equal(arrays[name], before[name])


@pytest.mark.parametrize("sizes", [{}, {"image_size": (35, 15), "patch_size": (7, 5)}], ids=str)
def test_same_sizes_give_a_copy(sizes):
    arrays = {"pos_embed": -0.0 * weights(CFG)["pos_embed"], "head.weight": draw(11, 30)}
    new, fitted = resize_weights(CFG, arrays, rule="dinov2", **sizes)
    assert new == CFG
    for name, array in arrays.items():
        assert fitted[name].tobytes() == array.tobytes()
        assert not np.shares_memory(fitted[name], array)


def test_one_integer_is_a_square():
    new, fitted = resize_weights(CFG, weights(CFG), image_size=36, patch_size=6)
    assert (new.image_size, new.patch_size) == ((36, 36), (6, 6))
    assert fitted["pos_embed"].shape == (1, 1 + 36, 30)
    assert fitted["patch_embed.proj.weight"].shape == (30, 3, 6, 6)


def test_image_and_patch_that_grow_alike_leave_the_positions():
    arrays = weights(CFG)
    _, fitted = resize_weights(CFG, arrays, image_size=(70, 45), patch_size=(14, 15))
    assert fitted["patch_embed.proj.weight"].shape == (30, 3, 14, 15)
    np.testing.assert_array_equal(fitted["pos_embed"], arrays["pos_embed"])


def test_cropped_image():
    cfg = CFG.replace(patch_remainder="crop")
    arrays = weights(cfg)
    _, fitted = resize_weights(cfg, arrays, image_size=(41, 19))
    np.testing.assert_array_equal(fitted["pos_embed"], arrays["pos_embed"])
    new, fitted = resize_weights(cfg, arrays, image_size=(43, 22))
    assert new.grid == (6, 4)
    assert fitted["pos_embed"].shape == (1, 1 + 24, 30)


@pytest.mark.parametrize("kind", ["sincos1d", "none"])
def test_fixed_positions_need_nothing(kind):
    cfg = CFG.replace(pos_embed=kind)
    arrays = weights(cfg)
    new, fitted = resize_weights(cfg, arrays, image_size=LARGER)
    assert new.grid == (7, 4)
    for name, array in arrays.items():
        np.testing.assert_array_equal(fitted[name], array)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"rule": "nearest"},
            ConfigError,
            'rule = "nearest" is unknown; use one of bicubic_anti',
        ),
        ({"patch_rule": "dinov2"}, ConfigError, 'patch_rule = "dinov2" is unknown; use one of'),
        (
            {"image_size": (36, 15)},
            ConfigError,
            r"image_size = \(36, 15\) is not divisible by patch_size",
        ),
        ({"patch_size": (7, 4)}, ConfigError, "the nearest valid sizes are 35x12 and 35x16"),
        ({"image_size": "large"}, ConfigError, "image_size"),
        ({"image_size": LARGER, "rule": "leading_rows"}, InputError, "7x4 patches need 28, and rule ="),
    ],
)
def test_errors(options, kind, message):
    with pytest.raises(kind, match=message) as raised:
        resize_weights(CFG, weights(CFG), **options)
    assert "\n" not in str(raised.value)


def test_norm_of_patches_has_no_other_size():
    cfg = CFG.replace(patch_embed="linear_hwc", patch_input_norm=True)
    arrays = weights(cfg)
    assert resize_weights(cfg, arrays, image_size=LARGER)[0].grid == (7, 4)
    with pytest.raises(
        ConfigError, match=r"patch_size = \(7, 3\) for weights of patch_size = \(7, 5\), but"
    ):
        resize_weights(cfg, arrays, patch_size=(7, 3))


@pytest.mark.parametrize(
    ("name", "shape", "sizes"),
    [
        ("pos_embed", r"\(1, 16, 30\)", {"image_size": LARGER}),
        ("patch_embed.proj.weight", r"\(30, 3, 7, 5\)", {"patch_size": (7, 3)}),
        ("blocks.0.attn.rel_pos_bias.table", r"\(48, 5\)", {"image_size": LARGER}),
    ],
)
def test_weights_of_another_schema(name, shape, sizes):
    cfg = CFG.replace(rel_pos_bias=True)
    arrays = {**weights(cfg), name: draw(2, 3)}
    with pytest.raises(
        WeightsError, match=rf"{name}: shape \(2, 3\) in the weights, {shape} in the schema"
    ):
        resize_weights(cfg, arrays, **sizes)
