"""Images of another size than the schema's: both twins, the real libraries, and load time agree."""

import numpy as np
import pytest
import torch

from evidence.timm_sweep import peer
from evidence.timm_sweep.shrink import shrunk_arguments, shrunk_schema
from parity.measure.redraw import Batch, redraw
from parity.twins.judge import Runs, compare
from parity.twins.run_jax import JaxTwin
from parity.twins.run_torch import TorchTwin
from tests.support.peers import EXACT, nchw, redrawn, run_both, run_torch
from tests.support.share import rarely
from tests.support.tiny import TINY, error
from vit_config import PRESETS, InputError, resize_weights
from vit_config.numerics.resample import RULES
from vit_config.rope import Rope

pytestmark = pytest.mark.slow

LARGER = (28, 25)  # 4 x 5 patches where the schema has 3 x 3
SMALLER = (14, 15)


def images(size, batch_size=2):
    return np.random.default_rng(3).standard_normal((batch_size, *size, 3))


def agree(cfg, size):
    """Both twins on images of a size, forward and backward, every module."""
    batch = Batch(images(size), np.array([3, 7]))

    def weights(name, kind, shape):
        return redraw(name, kind, shape, 0)

    ours, theirs = (twin(cfg).run(weights, batch, "float64") for twin in (JaxTwin, TorchTwin))
    levels, divergence = compare(Runs("float64", ours, theirs, ours, theirs))
    assert all(level.passed for level in levels), divergence


@pytest.mark.parametrize("rule", rarely(RULES, ("bicubic_antialias", "leading_rows")))
def test_the_twins_agree_by_every_rule(rule):
    # the table is resized once, before the first block
    cfg = TINY.replace(dynamic_image_size=True, pos_embed_resize=rule, register_tokens=2, depth=1)
    agree(cfg, SMALLER)
    if rule != "leading_rows":
        agree(cfg, LARGER)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"pos_embed": "sincos2d", "hidden_size": 40},
        pytest.param({"pos_embed": "sincos1d"}, marks=pytest.mark.exhaustive),
        {"hidden_size": 40, "pos_embed": "none", "rope": Rope(kind="centered", pairs="half")},
        pytest.param(
            {"hidden_size": 40, "rope": Rope(reference_grid=(4, 4), offset=1.0)},
            marks=pytest.mark.exhaustive,
        ),
        {"hidden_size": 40, "rope": Rope(kind="mixed", theta=10.0)},
        {"pool": "map", "pos_embed_prefix": "none"},
    ],
    ids=str,
)
def test_the_twins_agree_for_every_kind_of_position(changes):
    agree(TINY.replace(dynamic_image_size=True, depth=2, **changes), LARGER)


@pytest.mark.parametrize("rule", RULES)
def test_load_time_and_call_time_give_the_same(rule):
    size = SMALLER if rule == "leading_rows" else LARGER
    cfg = TINY.replace(dynamic_image_size=True, pos_embed_resize=rule)
    arrays = redrawn(cfg)
    fitted_cfg, fitted = resize_weights(cfg, arrays, image_size=size)
    assert fitted_cfg.image_size == size
    at_call_time = run_torch(cfg, arrays, images(size)).logits
    assert error(run_torch(fitted_cfg, fitted, images(size)).logits, at_call_time) < EXACT


def test_a_size_that_patches_do_not_divide_is_refused_or_cropped():
    cfg = TINY.replace(dynamic_image_size=True)
    arrays = redrawn(cfg)
    with pytest.raises(InputError, match="nearest valid sizes are 28x25 and 35x30"):
        run_torch(cfg, arrays, images((30, 27)))
    whole = images((30, 27))
    cropping = cfg.replace(patch_remainder="crop")
    for output in run_both(cropping, arrays, whole).values():
        assert error(output.logits, run_torch(cfg, arrays, whole[:, :28, :25]).logits) < EXACT


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "vit_base_patch14_dinov2",
        "vit_base_patch16_dinov3",
        "eva02_base_patch14_224",
        "vit_base_patch16_224",
    ],
)
def test_timm_agrees_at_another_size(name):
    """timm with its dynamic size: the learned table is resampled, rotary ones are made anew."""
    cfg, module = PRESETS[name], peer.architectures()[name]
    model = peer.create_float64(name, **shrunk_arguments(cfg, module), dynamic_img_size=True)
    small = shrunk_schema(cfg, model).replace(dynamic_image_size=True)
    from evidence.timm_sweep.architecture import redraw_model
    from parity.porting.dialects.records.timm import read_state

    state = redraw_model(model, 0)
    model.load_state_dict(state, strict=True)
    arrays = read_state({name: tensor.numpy() for name, tensor in state.items()}, join=np.concatenate)
    size = (4 * cfg.patch_size[0], 5 * cfg.patch_size[1])
    with torch.no_grad(), peer.float64():
        theirs = model.forward_head(model.forward_features(nchw(images(size))))
    for output in run_both(small, arrays, images(size)).values():
        assert error(output.logits, theirs) < EXACT
