"""Text towers of open_clip, OpenAI's CLIP and Big Vision, as their own code computes them."""

import json
import warnings
from importlib import import_module

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import traverse_util
from safetensors.torch import save_file

import parity
from evidence.timm_sweep.peer import import_timm
from tests.support.dialect_proof import redraw
from tests.support.linen_vit import LINEN, Encoder, LinenViT
from tests.support.tiny import TINY, error
from vit_config import InputError, Preprocess
from vit_config.errors import UnstatedError

import_timm()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what it imports
    open_clip = import_module("open_clip")

PIXELS = Preprocess(mean=(0.4, 0.5, 0.6), std=(0.3, 0.2, 0.4))
VISION = {"image_size": 12, "patch_size": 3, "width": 30, "head_width": 6, "layers": 1, "mlp_ratio": 2.0}
TEXT = {"context_length": 9, "vocab_size": 31, "width": 24, "heads": 3, "layers": 2, "mlp_ratio": 1.5}
IDS = np.random.default_rng(0).integers(0, 30, (4, 9))
IDS[:, 5] = 30
IMAGES = np.random.default_rng(5).integers(0, 256, (2, 12, 12, 3), np.uint8)
SIGLIP = {"no_causal_mask": True, "pool_type": "last", "proj_bias": True, "norm_kwargs": {"eps": 1e-3}}
VARIANTS = {
    "plain": {},
    "quick": {"quick_gelu": True},
    "custom": {"custom": True, "act_kwargs": {"approximate": "tanh"}},
    "siglip": {"custom": True, **SIGLIP, "init_logit_bias": -3.0},
    "end": {"pool_type": "eos", "eos_id": 7},
    "first, a factor of one axis": {"pool_type": "first", "nonscalar_logit_scale": True},
}


OF_BOTH = ("quick_gelu", "init_logit_bias", "nonscalar_logit_scale")


def saved(folder, *, custom=False, vision=None, **options):
    """A model of open_clip in its own form, and what its config file says."""
    whole = {name: options.pop(name) for name in OF_BOTH if name in options}
    cfg = {
        "embed_dim": 7,
        "vision_cfg": {**VISION, **(vision or {})},
        "text_cfg": {**TEXT, **options},
        **whole,
    }
    model = redraw((open_clip.CustomTextCLIP if custom else open_clip.CLIP)(**cfg))
    folder.mkdir()
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": cfg}))
    return model, folder


def peer(model, loaded, ids):
    pixels = torch.from_numpy(loaded.prepare(IMAGES)).permute(0, 3, 1, 2).double()
    with torch.no_grad():
        return model.get_logits(pixels, torch.from_numpy(ids))[0].numpy()


@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize("name", VARIANTS)
def test_open_clip(name, framework, tmp_path, x64):
    model, folder = saved(tmp_path / "hub", **VARIANTS[name])
    ids = np.where(IDS == 3, 7, IDS)
    ids[:, 6] = 7
    loaded = parity.load(folder, framework=framework, preprocess=PIXELS)
    answer = loaded.zero_shot(IMAGES, ids)
    assert error(answer.logits, peer(model, loaded, ids)) <= 1e-12
    assert (answer.probabilities.sum(axis=1) == pytest.approx(1)) == (name != "siglip")


@pytest.mark.parametrize("name", VARIANTS)
def test_a_model_of_open_clip_in_memory_says_what_it_is(name, tmp_path):
    model, folder = saved(tmp_path / "hub", **VARIANTS[name])
    ids = np.where(IDS == 3, 7, IDS)
    ids[:, 6] = 7
    loaded = parity.load(model, framework="torch", preprocess=PIXELS)
    assert error(loaded.zero_shot(IMAGES, ids).logits, peer(model, loaded, ids)) <= 1e-12
    assert loaded.texts.config == parity.load(folder, framework="torch").texts.config
    assert loaded.texts.origins["act"] == "its modules"


def test_a_file_of_open_clip_without_its_config_is_asked(tmp_path):
    model, folder = saved(tmp_path / "hub")
    (folder / "open_clip_config.json").unlink()
    given = {"num_heads": 5, "norm_eps": 1e-5, "act": "gelu", "pool": "class"}
    loaded = parity.load(folder, framework="torch", preprocess=PIXELS, given=given)
    with pytest.raises(UnstatedError) as asked:
        loaded.texts  # noqa: B018
    wanted = ("num_heads", "norm_eps", "act", "causal", "pool")
    assert asked.value.fields == tuple(f"text.{name}" for name in wanted)
    stated = zip(asked.value.fields, (3, 1e-5, "gelu", True, "largest"), strict=True)
    loaded = parity.load(folder, framework="torch", preprocess=PIXELS, given={**given, **dict(stated)})
    assert error(loaded.zero_shot(IMAGES, IDS).logits, peer(model, loaded, IDS)) <= 1e-12


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"qk_norm": True}, "text_cfg has qk_norm"),
        ({"pool_type": "none"}, "pool_type = 'none'"),
        ({"width": 23}, r"hidden_size = 24 \(shapes\), but 23"),
        ({"width": "many"}, "not a config of open_clip"),
    ],
)
def test_a_config_that_no_tower_has_is_refused(entry, said, tmp_path):
    _, folder = saved(tmp_path / "hub")
    file = folder / "open_clip_config.json"
    content = json.loads(file.read_text())
    content["model_cfg"]["text_cfg"] |= entry
    file.write_text(json.dumps(content))
    loaded = parity.load(folder, framework="torch", preprocess=PIXELS)
    with pytest.raises(ValueError, match=said):
        loaded.texts  # noqa: B018


def test_texts_that_its_code_would_change_first_are_refused(tmp_path):
    options = {"tokenizer_kwargs": {"strip_sep_token": True}}
    _, folder = saved(tmp_path / "hub", **options)
    (folder / "tokenizer.json").write_text("{}")
    loaded = parity.load(folder, framework="torch", preprocess=PIXELS)
    with pytest.raises(InputError, match=r"clean = lower, strip_sep_token = True.*give token ids"):
        loaded.zero_shot(IMAGES, ["a cat"])
    assert loaded.zero_shot(IMAGES, IDS).logits.shape == (2, 4)


def test_openai(tmp_path):
    """Its code decides all that open_clip's config file says."""
    cfg = {
        "embed_dim": 7,
        "quick_gelu": True,
        "vision_cfg": {**VISION, "width": 64, "head_width": 64, "mlp_ratio": 4.0},
    }
    cfg["text_cfg"] = {**TEXT, "width": 128, "heads": 2, "mlp_ratio": 4.0}
    model = redraw(open_clip.CLIP(**cfg))
    more = {"input_resolution": 12, "context_length": 9, "vocab_size": 31}
    state = {**model.state_dict(), **{name: torch.tensor(value) for name, value in more.items()}}
    torch.save(state, tmp_path / "model.pt")
    loaded = parity.load(tmp_path / "model.pt", framework="torch", preprocess=PIXELS)
    assert error(loaded.zero_shot(IMAGES, IDS).logits, peer(model, loaded, IDS)) <= 1e-12
    assert loaded.texts.origins["pool"] == "code of OpenAI's CLIP"
    assert (loaded.texts.config.num_heads, loaded.texts.config.act) == (2, "quick_gelu")


class LinenText(nn.Module):
    """The text tower of Big Vision, written from its published structure."""

    width: int = 24
    depth: int = 2
    scan: bool = False

    @nn.compact
    def __call__(self, ids):
        x = nn.Embed(31, self.width)(ids)
        init = nn.initializers.normal(0.02)
        x = x + self.param("pos_embedding", init, (1, ids.shape[1], self.width))
        cfg = TINY.replace(hidden_size=self.width, num_heads=3, depth=self.depth, mlp_dim=37)
        x = Encoder(cfg, LINEN, self.scan, False, name="Encoder_0")(x)
        return nn.Dense(11, name="head")(x[:, -1])


@pytest.mark.parametrize("scan", [False, True])
def test_big_vision(scan, tmp_path, x64):
    """Both towers of one file; only the pooling is not in it."""
    image = LinenViT(TINY.replace(act="gelu_tanh", class_token=False, pool="map"), True, scan=scan)
    text, stream = LinenText(scan=scan), np.random.default_rng(2)
    tree = jax.eval_shape(text.init, jax.random.key(0), IDS)["params"]
    drawn = {
        name: 0.2 * stream.standard_normal(leaf.shape) + name.endswith("scale")
        for name, leaf in traverse_util.flatten_dict(tree, sep="/").items()
    }
    of_image = image.drawn()
    arrays = {f"params/img/{name}": each for name, each in of_image.items()}
    arrays |= {f"params/txt/{name}": each for name, each in drawn.items()}
    arrays |= {"params/t": np.ones(1), "params/b": np.full(1, -2.0)}
    np.savez(tmp_path / "both.npz", **arrays)
    loaded = parity.load(tmp_path / "both.npz", framework="jax", given={"text.pool": "last"})
    images = stream.integers(0, 256, (2, 21, 15, 3), np.uint8)
    answer = loaded.zero_shot(images, IDS)
    zimg = image.logits(of_image, loaded.prepare(images).transpose(0, 3, 1, 2).astype(np.float64))
    params = traverse_util.unflatten_dict(drawn, sep="/")
    ztxt = np.asarray(text.apply({"params": params}, jnp.asarray(IDS)))
    zimg, ztxt = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (zimg, ztxt))
    assert error(answer.logits, zimg @ ztxt.T * np.exp(1.0) - 2) <= 1e-12
    assert loaded.texts.origins["num_heads"] == "shapes"
    said = r"cannot infer text\.pool; give --set text\.pool=POOL; text\.pool: eos, largest, last, first"
    with pytest.raises(UnstatedError, match=said):
        parity.load(tmp_path / "both.npz", framework="jax").texts  # noqa: B018
