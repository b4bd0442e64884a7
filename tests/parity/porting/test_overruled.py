"""What a config file states that no schema says or the tensors deny, and how the user settles it."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.reading.libraries.peers import import_timm
from parity.porting.recognition.known import OVERRIDDEN, Known
from parity.porting.writing.conversion import convert
from tests.support.convert_cases import arrays_of, refused, run
from tests.support.tiny import TINY
from vit_config import ConfigError, WeightsError, write_weights
from vit_config.errors import UnstatedError

CFG = TINY.replace(num_classes=0, register_tokens=2, hidden_size=40, mlp_dim=40)
NORMALISED = {"pool": "mean", "final_norm": "post_pool"}


def folder_of(cfg, folder, **arguments):
    """timm's folder of a model as strangers have it, its config.json with other arguments."""
    write_weights(folder / "own.safetensors", cfg, arrays_of(cfg))
    convert(folder / "own.safetensors", to="timm", out=folder / "timm")
    weights, path = folder / "timm/model.safetensors", folder / "timm/config.json"
    save_file(load_file(weights), weights)  # without what this project writes into the header
    config = json.loads(path.read_text()) if path.is_file() else {"model_args": {}}
    config["model_args"] |= arguments
    path.write_text(json.dumps(config))
    return folder / "timm"


@pytest.mark.parametrize("way", ["", "max", "avgmax"])
def test_a_feature_extractor_that_pools_nothing_or_otherwise_asks_which_vector_to_take(way, tmp_path):
    folder = folder_of(CFG, tmp_path, global_pool=way)
    for path in (folder, folder / "model.safetensors"):
        with pytest.raises(UnstatedError, match=re.escape(f"global_pool = {way!r}, and no")) as caught:
            read_checkpoint(path)
        assert caught.value.fields == ("pool",)
        assert "give --set pool=POOL; " in str(caught.value)
        assert str(caught.value).endswith("; pool: class, mean")
    for source in ({"given": {"pool": "mean"}}, {"override": {"pool": "mean"}}):
        checkpoint = read_checkpoint(folder, **source)
        assert checkpoint.config == CFG.replace(pool="mean")
        assert f"pool = mean as stated, where config.json says global_pool = {way!r}" in checkpoint.notes


def test_heads_that_do_not_divide_the_width_are_the_words_of_somebody(tmp_path):
    """Whoever reads a checkpoint can make no other width: the file or the flag is wrong."""
    folder = folder_of(CFG, tmp_path, num_heads=7)
    fact = "num_heads = 7 does not divide hidden_size = 40; num_heads is"
    with pytest.raises(ConfigError, match=f"{fact} from config.json: give --override num_heads=VALUE$"):
        read_checkpoint(folder)
    assert read_checkpoint(folder, override={"num_heads": CFG.num_heads}).config == CFG
    with pytest.raises(ConfigError, match=f"{fact} overridden: give another value$"):
        read_checkpoint(folder, override={"num_heads": 7})


def test_without_a_class_token_only_the_mean_is_left(tmp_path):
    folder = folder_of(CFG.replace(class_token=False, pool="mean"), tmp_path, global_pool="")
    with pytest.raises(UnstatedError, match=r"give --set pool=POOL; .* is pooled; pool: mean$"):
        read_checkpoint(folder)
    assert read_checkpoint(folder, given={"pool": "mean"}).config.pool == "mean"


@pytest.mark.parametrize("way", ["", "max"])
def test_a_head_that_sees_another_pool_is_refused(way, tmp_path):
    folder = folder_of(TINY, tmp_path, global_pool=way)
    with pytest.raises(ConfigError, match=rf"global_pool = '{way}'; expected one of 'token', 'avg'"):
        read_checkpoint(folder)


def test_prefix_tokens_are_no_part_of_one_token(tmp_path):
    folder = folder_of(TINY, tmp_path, pool_include_prefix=True)
    assert read_checkpoint(folder).config == TINY
    config = TINY.replace(pool="mean", final_norm="post_pool", pool_prefix=True)
    (tmp_path / "mean").mkdir()
    assert read_checkpoint(folder_of(config, tmp_path / "mean")).config == config


def test_an_override_goes_with_the_tensors_and_the_refusal_names_it(tmp_path):
    """As of models whose classes of layers are handed over in Python and stand in no config.json."""
    gated = CFG.replace(mlp="swiglu_packed", act="silu")
    folder = folder_of(gated, tmp_path)
    plain = {"img_size": [21, 15], "patch_size": [7, 5], "embed_dim": 40, "depth": 3, "num_heads": 5,
             "reg_tokens": 2, "mlp_ratio": 2.0, "num_classes": 0}  # fmt: skip
    config = {"architecture": "vit_small_patch16_224", "num_classes": 0, "model_args": plain,
              "pretrained_cfg": {"input_size": [3, 21, 15]}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    advice = "mlp = swiglu_packed (shapes), but mlp (config.json); to go with the first, give --override"
    with pytest.raises(WeightsError, match=re.escape(f"{advice} mlp=swiglu_packed")):
        read_checkpoint(folder)
    override = {"mlp": "swiglu_packed"}
    with pytest.raises(UnstatedError) as caught:  # the activation was said of another MLP
        read_checkpoint(folder, override=override)
    assert caught.value.fields == ("act",)
    for options in ({"override": {**override, "act": "silu"}},
                    {"override": override, "given": {"act": "silu"}}):  # fmt: skip
        checkpoint = read_checkpoint(folder, **options)
        assert checkpoint.config == gated
        assert any(note.startswith("mlp = swiglu_packed by --override") for note in checkpoint.notes)
    with pytest.raises(WeightsError, match=r"but mlp \(--override\); tensors cannot be overridden"):
        read_checkpoint(folder, override={"mlp": "mlp"})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", ["", "avg"])
def test_the_source_is_run_with_the_vector_that_was_asked_for(way, tmp_path, capsys):
    arguments = {"img_size": 24, "embed_dim": 40, "depth": 2, "num_heads": 5, "num_classes": 0}
    timm = import_timm()
    gated = {"mlp_layer": timm.layers.SwiGLUPacked, "act_layer": torch.nn.SiLU}
    model = timm.create_model("vit_small_patch16_224", **arguments, **gated, global_pool=way)
    (tmp_path / "timm").mkdir()
    torch.save(model.state_dict(), tmp_path / "timm/pytorch_model.bin")
    config = {"architecture": "vit_small_patch16_224", "num_classes": 0,
              "model_args": {**arguments, "global_pool": way},
              "pretrained_cfg": {"input_size": [3, 24, 24]}}  # fmt: skip
    (tmp_path / "timm/config.json").write_text(json.dumps(config))
    said = ("--override", "pool=class", "mlp=swiglu_packed", "act=silu")
    status, out, err = run(
        capsys,
        "convert",
        tmp_path / "timm",
        tmp_path / "own.safetensors",
        "--to",
        "jax",
        "--verify",
        *said,
    )
    assert status == 0, err
    verified = json.loads((tmp_path / "own.safetensors.verification.json").read_text())
    assert {row["ran_in"]: row["what"] for row in verified["rows"]}["timm"] == "source", out
    assert verified["passed"]
    assert np.isfinite([row["error"] for row in verified["rows"]]).all()


def test_the_refusal_of_a_headless_mean_names_what_may_be_taken_instead(tmp_path, capsys):
    folder = folder_of(CFG.replace(**NORMALISED, image_size=(21, 21), patch_size=(7, 7)), tmp_path)
    advice = ("pool = mean", "its tokens are the same whatever is pooled", "--override pool=class")
    refused(capsys, tmp_path, advice, "convert", folder, tmp_path / "hf", "--to", "hf")


def test_a_count_that_is_none_is_refused_unless_it_is_overruled():
    known = Known()
    with pytest.raises(
        WeightsError, match=r"num_heads = 0 \(config\.json\); expected a positive whole number"
    ):
        known.take({"num_heads": 0}, "config.json")
    known.take({"num_heads": 3}, OVERRIDDEN)
    known.take({"num_heads": 0}, "config.json")
    assert known.fields == {"num_heads": 3}
