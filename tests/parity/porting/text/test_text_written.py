"""Both towers are written to another library, which computes the same, and come back bit for bit."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import parity
from parity.cli import main
from parity.porting.dialects.records.open_clip_config import FILE, OpenClipSettings, siglip_module
from parity.porting.dialects.table import bind_ours
from parity.porting.formats.metadata import Metadata
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.text import big_vision, write
from parity.porting.text.read import read_text
from tests.parity.porting.text.test_text_dialects import IDS, IMAGES, PIXELS, open_clip, peer, saved
from tests.support import text_models, tokenizers_tiny
from tests.support.hf_models import transformers
from tests.support.tiny import error
from vit_config import ConfigError, InputError, WeightsError, preset, read_weights


def hf(folder):
    """The library's strict loading of what was written."""
    config = json.loads((folder / "config.json").read_text())
    kind = getattr(transformers, config["architectures"][0])
    model, info = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.double().eval()


def likeness(model, ids, images):
    with torch.no_grad():
        out = model(input_ids=torch.from_numpy(ids), pixel_values=torch.from_numpy(images))
    return out.logits_per_image.numpy()


def assert_same(model, other):
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def of_open_clip(folder):
    """The model that open_clip's factory builds of the written config file, strictly loaded."""
    cfg = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
    model = open_clip.CLIP(**cfg).double().eval()
    model.load_state_dict(load_file(folder / "open_clip_model.safetensors"), strict=True)
    return model


@pytest.mark.parametrize("kind", ["clip", "clip of old"])
def test_from_transformers_to_open_clip_and_back(kind, tmp_path):
    model = text_models.build(kind)
    model.save_pretrained(tmp_path / "hf")
    parity.convert(tmp_path / "hf", to="open-clip", out=tmp_path / "oc", text=True, preprocess=PIXELS)
    ids, images = text_models.texts(length=text_models.LENGTH), text_models.pictures()
    expected = likeness(model, ids, images)
    with torch.no_grad():
        logits = of_open_clip(tmp_path / "oc").get_logits(
            torch.from_numpy(images), torch.from_numpy(ids)
        )
    assert error(logits[0].numpy(), expected) <= 1e-12
    parity.convert(tmp_path / "oc", to="hf", out=tmp_path / "back", text=True)
    assert error(likeness(hf(tmp_path / "back"), ids, images), expected) <= 1e-12
    assert_same(model, hf(tmp_path / "back"))


def test_siglip_to_big_vision_and_back(tmp_path):
    model = text_models.build("siglip")
    model.save_pretrained(tmp_path / "hf")
    out = tmp_path / "both.npz"
    parity.convert(tmp_path / "hf", to="big-vision", out=out, text=True, preprocess=PIXELS)
    with np.load(out) as file:
        names = {name.split("/")[1] for name in file if name.startswith("params/")}
        assert names == {"img", "txt", "t", "b"}
        assert file["params/t"].shape == (1,)
        bare = {name: file[name] for name in file}
    parity.convert(out, to="hf", out=tmp_path / "back", text=True)
    ids, images = text_models.texts(), text_models.pictures()
    again = hf(tmp_path / "back")
    assert error(likeness(again, ids, images), likeness(model, ids, images)) <= 1e-12
    assert_same(model, again)
    np.savez(tmp_path / "bare.npz", **bare)  # without what this project says in it
    read = read_text(read_checkpoint(tmp_path / "bare.npz", given={"text.pool": "last"}))
    assert read.config == read_text(read_checkpoint(out)).config


def test_a_siglip_goes_to_open_clip_and_back(tmp_path):
    """Its image tower is timm's there, which a module beside the config registers."""
    model = text_models.build("siglip")
    model.save_pretrained(tmp_path / "hf")
    out = tmp_path / "oc"
    parity.convert(tmp_path / "hf", to="open-clip", out=out, text=True, preprocess=PIXELS)
    config = json.loads((out / "open_clip_config.json").read_text())["model_cfg"]
    assert config["text_cfg"]["hf_tokenizer_name"]  # else open_clip takes CLIP's
    exec(compile((out / "model.py").read_text(), "model.py", "exec"), vars(sys.modules[__name__]))
    del config["custom_text"]
    clip = open_clip.CustomTextCLIP(**config).double().eval()
    clip.load_state_dict(load_file(out / "open_clip_model.safetensors"), strict=True)
    ids, images = text_models.texts(length=text_models.LENGTH), text_models.pictures()
    with torch.no_grad():
        logits = clip.get_logits(torch.from_numpy(images), torch.from_numpy(ids))[0].numpy()
    assert error(logits, likeness(model, ids, images)) <= 1e-12
    parity.convert(out, to="hf", out=tmp_path / "back", text=True)
    assert_same(model, hf(tmp_path / "back"))
    named = read_checkpoint(out)
    (out / "model.py").unlink()
    assert read_checkpoint(out).config == named.config


def test_a_tower_that_timm_has_is_named(tmp_path):
    """Then open_clip needs no module."""
    cfg = preset("vit_so400m_patch16_siglip_256").replace(num_classes=0)
    assert OpenClipSettings("timm").files(cfg, Metadata())[FILE]["model_cfg"]["vision_cfg"] == {
        "image_size": 256,
        "timm_model_name": "vit_so400m_patch16_siglip_256",
        "timm_model_pretrained": False,
        "timm_pool": "map",
        "timm_proj": "none",
    }
    assert siglip_module(cfg) == {}
    assert "model.py" in siglip_module(cfg.replace(act="quick_gelu"))


def test_from_open_clip_to_transformers(tmp_path):
    model, folder = saved(tmp_path / "hub", quick_gelu=True)
    parity.convert(folder, to="hf", out=tmp_path / "hf", text=True, preprocess=PIXELS)
    loaded = parity.load(tmp_path / "hf", framework="torch")
    pixels = loaded.prepare(IMAGES).transpose(0, 3, 1, 2).astype(np.float64)
    theirs = hf(tmp_path / "hf")
    assert theirs.config.text_config.eos_token_id == 2
    assert error(likeness(theirs, IDS, pixels), peer(model, loaded, IDS)) <= 1e-12


def test_to_openai_and_back(tmp_path):
    wide = {"width": 64, "head_width": 64, "mlp_ratio": 4.0}
    text = {"width": 128, "heads": 2, "mlp_ratio": 4.0}
    model, folder = saved(tmp_path / "hub", quick_gelu=True, vision=wide, **text)
    out = tmp_path / "model.pt"
    parity.convert(folder, to="clip", out=out, text=True, preprocess=PIXELS)
    written = torch.load(out, weights_only=True)
    assert written.keys() - model.state_dict().keys() == {
        "input_resolution",
        "context_length",
        "vocab_size",
    }
    for name, tensor in model.state_dict().items():
        assert torch.equal(written[name], tensor)
    parity.convert(out, to="open-clip", out=tmp_path / "oc", text=True)
    assert_same(model, of_open_clip(tmp_path / "oc"))


def test_a_projection_with_a_bias_goes_to_open_clip(tmp_path):
    """From its other form, with the names under ``text.``, to the one that is written."""
    options = {"no_causal_mask": True, "pool_type": "last", "proj_bias": True, "init_logit_bias": -3.0}
    model, folder = saved(tmp_path / "hub", custom=True, **options)
    parity.convert(folder, to="open-clip", out=tmp_path / "oc", text=True, preprocess=PIXELS)
    config = json.loads((tmp_path / "oc/open_clip_config.json").read_text())
    assert config["model_cfg"]["init_logit_bias"] == 0.0  # which a model needs, to have one
    loaded = parity.load(tmp_path / "oc", framework="torch")
    expected = peer(model, loaded, IDS)
    assert error(peer(of_open_clip(tmp_path / "oc"), loaded, IDS), expected) <= 1e-12
    assert error(loaded.zero_shot(IMAGES, IDS).logits, expected) <= 1e-12


@pytest.mark.parametrize(
    ("kind", "to", "said"),
    [
        ("clip", "timm", "has no place for a text tower"),
        ("clip", "clip", "heads are 64 wide"),
        ("siglip", "timm", "has no place for a text tower"),
    ],
)
def test_what_cannot_hold_the_tower_is_refused(kind, to, said, tmp_path):
    text_models.build(kind).save_pretrained(tmp_path / "hf")
    with pytest.raises(ConfigError, match=said):
        parity.convert(tmp_path / "hf", to=to, out=tmp_path / "out", text=True)
    assert not (tmp_path / "out").exists()


def test_a_tower_that_the_other_librarys_code_would_pool_elsewhere_is_refused(tmp_path):
    _, folder = saved(tmp_path / "first", pool_type="first")
    with pytest.raises(ConfigError, match=r"hf-clip-text cannot hold this text tower: .*pool = first"):
        parity.convert(folder, to="hf", out=tmp_path / "out", text=True)
    _, folder = saved(tmp_path / "two", pool_type="eos", eos_id=2)
    with pytest.raises(ConfigError, match="takes eos_id = 2 to mean pool = largest"):
        parity.convert(folder, to="hf", out=tmp_path / "out", text=True)
    with pytest.raises(ConfigError, match="embedded in 7 numbers and images in 3"):
        parity.convert(folder, to="open-clip", out=tmp_path / "out", text=True, num_classes=3)


def test_a_text_tower_with_nan_is_written_on_request_alone(tmp_path):
    model = text_models.build("clip")
    model.text_model.embeddings.token_embedding.weight.data[0, 0] = torch.nan
    model.save_pretrained(tmp_path / "hf")
    given = {"to": "open-clip", "out": tmp_path / "oc", "text": True, "preprocess": PIXELS}
    with pytest.raises(WeightsError, match=r"1 of .* values are not finite"):
        parity.convert(tmp_path / "hf", **given)
    parity.convert(tmp_path / "hf", **given, allow_nonfinite=True)
    tensors = load_file(tmp_path / "oc" / "open_clip_model.safetensors")
    assert sum(int(each.isnan().sum()) for each in tensors.values()) == 1


def test_a_file_that_was_changed_afterwards_is_refused(tmp_path):
    text_models.build("clip").save_pretrained(tmp_path / "hf")
    parity.convert(tmp_path / "hf", to="hf", out=tmp_path / "out", text=True)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    config["text_config"]["hidden_act"] = "gelu"
    (tmp_path / "out" / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match=r"text\.act = quick_gelu \(its header\), but gelu"):
        read_text(read_checkpoint(tmp_path / "out"))


def test_the_command_takes_tokenizer_and_type_along(tmp_path, capsys):
    model = text_models.build("clip")
    model.save_pretrained(tmp_path / "hf")
    tokenizers_tiny.save_clip(tmp_path / "hf")
    command = ["convert", str(tmp_path / "hf"), str(tmp_path / "oc"), "--to", "open-clip", "--text"]
    assert main([*command, "--dtype", "float32"]) == 0, capsys.readouterr().err
    assert "the text tower beside it written as open-clip-text" in capsys.readouterr().out
    state = load_file(tmp_path / "oc" / "open_clip_model.safetensors")
    assert {each.dtype for each in state.values()} == {torch.float32}
    own, copy = ((tmp_path / name / "tokenizer.json").read_bytes() for name in ("hf", "oc"))
    assert own == copy
    loaded = parity.load(tmp_path / "oc", framework="torch", preprocess=PIXELS)
    assert loaded.texts.embed(["a cat"]).shape == (1, 17)
    assert main([*command[:-1], "--force"]) == 0
    assert not (tmp_path / "oc" / "tokenizer.json").exists()
    with pytest.raises(InputError, match="no text tower"):
        parity.load(tmp_path / "oc", framework="torch").texts  # noqa: B018


@pytest.mark.parametrize("wrong", [False, True])
def test_a_text_tower_is_verified_too(wrong, tmp_path, monkeypatch, capsys):
    text_models.build("siglip").save_pretrained(tmp_path / "hf")
    if wrong:  # queries and keys change places in what is written
        right = big_vision.DIALECTS[0].tables[0]
        turned = [
            replace(row, theirs=(row.theirs[1], row.theirs[0], row.theirs[2]))
            if len(row.theirs) == 3
            else row
            for row in right
        ]
        monkeypatch.setattr(write, "bind_ours", lambda _, *more: bind_ours(tuple(turned), *more))
    command = ["convert", str(tmp_path / "hf"), str(tmp_path / "both.npz"), "--to", "big-vision"]
    assert main([*command, "--text", "--verify"]) == wrong
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    ends = [line[-1] for line in lines if line[:2] == ["written,", "texts"]]
    assert ends == (["DIFFERENT", "DIFFERENT"] if wrong else ["equal", "equal"])


def test_the_projects_own_file_holds_both(tmp_path):
    """Either twin loads the image tower by itself, and both towers go on to another library."""
    model = text_models.build("siglip")
    model.save_pretrained(tmp_path / "hf")
    out = tmp_path / "both.safetensors"
    done = parity.convert(tmp_path / "hf", to="parity", out=out, text=True, preprocess=PIXELS)
    assert not [note for note in done.notes if "left out" in note]
    assert "text_model" in " ".join(read_checkpoint(tmp_path / "hf").notes)
    assert read_weights(out).arrays.keys() == read_checkpoint(out).arrays.keys()
    parity.convert(out, to="hf", out=tmp_path / "back", text=True)
    assert_same(model, hf(tmp_path / "back"))
    alone = tmp_path / "alone.safetensors"
    assert parity.convert(out, to="parity", out=alone).config == done.config
    assert not [name for name in load_file(alone) if name.startswith("text.")]
