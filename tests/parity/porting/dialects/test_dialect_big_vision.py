"""Files of Big Vision: unrolled and scanned, every head, every vintage, both towers."""

from itertools import product

import ml_dtypes
import numpy as np
import pytest
import torch

from parity.porting.dialects import dialects
from parity.porting.formats import open_container
from parity.porting.models.files import save
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.reading.libraries.peers import import_timm
from parity.porting.recognition.recognise import has_marks
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import images_for, prove, redraw, twin_logits
from tests.support.linen_vit import LinenViT, loaded
from tests.support.tiny import TINY, error
from vit_config import ConfigError, WeightsError
from vit_torch import ViT

CFG = TINY.replace(act="gelu_tanh")
GAP = {"class_token": False, "pool": "mean"}
MAP = {"class_token": False, "pool": "map"}
HEADS = {
    "tok": {},
    "gap": {**GAP, "head_hidden": 17},
    "map": MAP,
    "siglip": {**MAP, "num_classes": 0},
}
SINCOS = {
    "sincos_gap": {**GAP, "pos_embed": "sincos2d_simple", "hidden_size": 40},
    "sincos_tok": {"pos_embed": "sincos2d_simple", "hidden_size": 40},
}
FORMATS = {"big-vision": False, "big-vision-scan": True}


def model_of(*, scan=False, **changes):
    return LinenViT(CFG.replace(**changes), big_vision=True, scan=scan)


def saved(tmp_path, prefix="", *, scan=False, also=(), **changes):
    """A model's file, the model, its parameters."""
    model = model_of(scan=scan, **changes)
    parameters = model.drawn()
    path = tmp_path / "theirs.npz"
    np.savez(path, **{f"{prefix}{key}": value for key, value in parameters.items()}, **dict(also))
    return path, model, parameters


def _files():
    """Every head unrolled or scanned, in turn; a share of the others."""
    for at, (head, name) in enumerate(product([*HEADS, *SINCOS], FORMATS)):
        yield pytest.param(name, head, marks=[] if at % 4 in (0, 3) else pytest.mark.exhaustive)


@pytest.mark.parametrize(("name", "head"), [*_files()])
def test_there_and_back(tmp_path, name, head):
    changes = {**HEADS, **SINCOS}[head]
    path, model, parameters = saved(tmp_path, scan=FORMATS[name], **changes)
    prove(
        path,
        lambda images: model.logits(parameters, images),
        to=name,
        out=tmp_path / "back.npz",
        reload=lambda out: lambda images: model.logits(loaded(out), images),
        # the table is not in the file, so no tensor says how large images are
        given={"image_size": CFG.image_size} if head in SINCOS else {},
    )


def test_what_the_file_does_not_say_the_code_decides(tmp_path):
    path, *_ = saved(tmp_path, **MAP)

    checkpoint = read_checkpoint(path)

    assert checkpoint.config == CFG.replace(**MAP, pos_embed_resize="bilinear_corners")
    assert checkpoint.origins["pool"] == checkpoint.origins["num_heads"] == "shapes"
    assert checkpoint.origins["act"] == "code of Big Vision"
    assert checkpoint.preprocess.mean == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("name", FORMATS)
def test_it_is_taken_for_no_other(tmp_path, name):
    path, *_ = saved(tmp_path, scan=FORMATS[name], **MAP)
    tensors = open_container(path).tensors

    assert [each.name for each in dialects() if has_marks(each, tensors)] == [name]


def test_the_image_size_of_fixed_positions_is_asked_for(tmp_path):
    path, *_ = saved(tmp_path, **SINCOS["sincos_gap"])

    with pytest.raises(ConfigError, match="cannot infer image_size; give --set image_size=HxW"):
        read_checkpoint(path)


def test_the_image_tower_is_taken_and_the_rest_said(tmp_path):
    text = {
        "params/txt/Encoder_0/encoderblock_0/LayerNorm_0/scale": np.ones(30),
        "params/txt/Embed_0/embedding": np.ones((50, 30)),
        "params/t": np.ones(1),
        "params/b": np.ones(1),
        "opt/0/mu/img/embedding/kernel": np.ones((7, 5, 3, 30)),
    }
    path, model, parameters = saved(tmp_path, "params/img/", also=text.items(), **HEADS["siglip"])

    checkpoint = read_checkpoint(path)

    assert checkpoint.dialect.name == "big-vision"
    assert checkpoint.notes == (
        "stripped 'params/img' from every name",
        "left out 5 tensors that are not under 'params/img'",
        "took the 9 positions for a square of 3x3, so images are 21x15; --set image_size=HxW says"
        " otherwise",
    )
    convert(path, to="parity", out=tmp_path / "own.safetensors")
    images = images_for(model.cfg)
    expected = model.logits(parameters, images)
    for logits in twin_logits(tmp_path / "own.safetensors", images).values():
        assert error(logits, expected) <= 1e-12


def older(parameters, table, numbers, inlined):
    """The tree as an older vintage of the repository kept it, its class token's row not folded."""
    old = {}
    for name, value in parameters.items():
        if name == "pos_embedding":
            name = table
            if "cls" in parameters:
                row = np.random.default_rng(7).standard_normal((1, 1, value.shape[2]))
                old["cls"] = parameters["cls"] - row
                value = np.concatenate([row, value], axis=1)
        if "encoderblock" in name:
            for kind, number in zip(("Attention_0", "LayerNorm_1", "MlpBlock_0"), numbers, strict=True):
                name = name.replace(kind, f"{kind[:-2]}_{number}")
        old.setdefault(name.removeprefix("MAPHead_0/") if inlined else name, value)
    return old


@pytest.mark.parametrize(
    ("table", "numbers", "inlined", "head"),
    [
        ("pos_embedding", (0, 1, 0), False, "tok"),
        ("Transformer/pos_embedding", (0, 1, 0), False, "tok"),
        ("Transformer/posembed_input/pos_embedding", (0, 1, 0), True, "map"),
        ("Transformer/pos_embedding", (1, 2, 3), True, "map"),
        ("Transformer/posembed_input/pos_embedding", (1, 2, 3), False, "map"),
        ("pos_embedding", (1, 2, 3), False, "gap"),
    ],
)
def test_older_vintages_are_read_and_written_as_the_current_one(tmp_path, table, numbers, inlined, head):
    model = model_of(**HEADS[head])
    parameters = model.drawn()
    np.savez(tmp_path / "old.npz", **older(parameters, table, numbers, inlined))

    done = convert(tmp_path / "old.npz", to="big-vision", out=tmp_path / "new.npz")

    new = loaded(tmp_path / "new.npz")
    assert new.keys() == parameters.keys()
    for name, value in new.items():
        np.testing.assert_allclose(value, parameters[name], rtol=1e-14, atol=1e-15, err_msg=name)
    folded = "position rows folded into 1 of the tokens before the patches"
    assert (folded in done.notes) == ("cls" in parameters)


def test_one_form_becomes_the_other_bit_for_bit(tmp_path):
    path, _, parameters = saved(tmp_path, **MAP)

    done = convert(path, to="big-vision-scan", out=tmp_path / "scan.npz")
    convert(done.path, to="big-vision", out=tmp_path / "unrolled.npz")

    scanned, unrolled = loaded(tmp_path / "scan.npz"), loaded(tmp_path / "unrolled.npz")
    key = "Transformer/encoderblock/MlpBlock_0/Dense_1/bias"
    one = [parameters[key.replace("block/", f"block_{i}/", 1)] for i in range(CFG.depth)]
    np.testing.assert_array_equal(scanned[key], np.stack(one))
    assert unrolled.keys() == parameters.keys()
    for name, value in unrolled.items():
        np.testing.assert_array_equal(value, parameters[name], err_msg=name)


def test_bfloat16_is_kept(tmp_path):
    model = model_of(**GAP)
    parameters = {name: value.astype(ml_dtypes.bfloat16) for name, value in model.drawn().items()}
    np.savez(tmp_path / "theirs.npz", **parameters)
    assert loaded(tmp_path / "theirs.npz")["head/bias"].dtype == np.dtype("V2")

    convert(tmp_path / "theirs.npz", to="parity", out=tmp_path / "own.safetensors")
    convert(tmp_path / "own.safetensors", to="big-vision", out=tmp_path / "back.npz")

    back = loaded(tmp_path / "back.npz")
    assert back.keys() == parameters.keys()
    for name, value in back.items():
        assert value.dtype == np.dtype("V2")
        assert value.tobytes() == parameters[name].tobytes()


def test_flattened_patches_are_refused(tmp_path):
    path, _, parameters = saved(tmp_path, **GAP)
    parameters["embedding/kernel"] = parameters["embedding/kernel"].reshape(-1, 30)
    np.savez(path, **parameters)

    with pytest.raises(WeightsError, match=r"embedding/kernel: has shape \(105, 30\)"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"act": "gelu"}, "act = gelu"),
        ({"pool": "mean"}, "a class token if that is pooled"),
        ({**MAP, "pool_num_heads": 3}, "pool_num_heads = 3"),
        ({"pos_embed": "sincos2d_simple", "hidden_size": 40, "qk_norm": True}, "qk_norm = true"),
    ],
)
def test_what_big_vision_cannot_say_is_refused(tmp_path, changes, why):
    path = tmp_path / "own.safetensors"
    save(path, redraw(ViT(CFG.replace(**changes))))

    with pytest.raises(ConfigError, match=why):
        convert(path, to="big-vision", out=tmp_path / "out.npz")


@pytest.mark.parametrize("head", ["tok", "map"])
def test_timm_reads_what_is_written(tmp_path, head):
    """timm has a reader of its own for these files."""
    path, model, parameters = saved(tmp_path, **HEADS[head])
    convert(path, to="big-vision", out=tmp_path / "back.npz")
    cfg, timm = model.cfg, import_timm()
    peer = timm.models.vision_transformer.VisionTransformer(
        img_size=cfg.image_size,
        patch_size=cfg.patch_size,
        embed_dim=cfg.hidden_size,
        depth=cfg.depth,
        num_heads=cfg.num_heads,
        mlp_ratio=cfg.mlp_dim / cfg.hidden_size,
        num_classes=cfg.num_classes,
        class_token=cfg.class_token,
        no_embed_class=True,
        global_pool={"class": "token", "map": "map"}[cfg.pool],
        fc_norm=False,
        act_layer="gelu_tanh",
    )
    peer = peer.double().eval()

    peer.load_pretrained(str(tmp_path / "back.npz"))

    images = images_for(cfg)
    with torch.no_grad():
        assert error(peer(torch.from_numpy(images)), model.logits(parameters, images)) <= 1e-12
