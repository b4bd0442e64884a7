"""What people put around a model: names in front of its names, other models beside it, pieces of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.container_files import write_file
from tests.support.convert_cases import arrays_of, refused, run
from tests.support.hf_models import MLP, SIZES, SQUARE, build, save
from tests.support.tiny import TINY
from vit_config import WeightsError
from vit_config.errors import UnstatedError

CFG = TINY.replace(norm_eps=1e-6, depth=2, layer_scale=1.0)
GIVEN = {"num_heads": 5, "norm_eps": 1e-6, "act": "gelu", "pool": "class", "image_size": CFG.image_size}


@pytest.fixture(scope="module")
def state():
    """timm's names."""
    return {name: torch.from_numpy(each) for name, each in arrays_of(CFG).items()}


def under(prefix, state):
    return {f"{prefix}{name}": each for name, each in state.items()}


def saved(content, folder):
    torch.save(content, folder / "model.pth")
    return folder / "model.pth"


def assert_same(actual, state):
    assert actual.config.depth == CFG.depth
    assert sorted(actual.arrays) == sorted(state)
    for name, stored in actual.arrays.items():
        np.testing.assert_array_equal(stored.load(), state[name].numpy())


PREFIXES = (
    "image_encoder", "vision_tower", "visual_encoder", "encoder_q", "module.base_encoder",
    "base_model.model", "model.vision_tower.timm_model", "net.0", "my_own.thing",
)  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
def test_whatever_stands_before_the_only_model_is_stripped_and_said(prefix, state, tmp_path):
    path = saved({**under(f"{prefix}.", state), "logit_scale": torch.ones(1)}, tmp_path)
    checkpoint = read_checkpoint(path, given=GIVEN)
    assert_same(checkpoint, state)
    assert checkpoint.notes[0] == f"stripped {prefix!r} from every name"
    assert checkpoint.notes[1] == f"left out 1 tensor that is not under {prefix!r}"


@pytest.mark.parametrize("name", ["_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"])
def test_wrappers_of_modules_are_taken_out_anywhere(name, state, tmp_path):
    wrapped = {
        f"{name}.{key}".replace("blocks.1.", f"blocks.1.{name}.").replace("mlp.", f"mlp.{name}."): each
        for key, each in state.items()
    }
    checkpoint = read_checkpoint(saved({"model": wrapped}, tmp_path), given=GIVEN)
    assert_same(checkpoint, state)
    assert checkpoint.notes[:2] == (
        f"took {name!r} out of the names",
        "stripped 'model' from every name",
    )


def test_names_that_would_clash_stay(state, tmp_path):
    twice = {**state, "_orig_mod.norm.weight": state["norm.weight"]}
    with pytest.raises(WeightsError, match=r"_orig_mod\.norm\.weight"):
        read_checkpoint(saved(twice, tmp_path), given=GIVEN)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("model", "model_ema.module"),  # torchvision's scripts
        ("state_dict", "state_dict_ema"),
        ("student.module.backbone", "teacher.backbone"),
        ("state_dict.module.base_encoder", "state_dict.module.momentum_encoder"),
        ("image_encoder", "text.model"),
    ],
)
def test_of_several_models_one_is_asked_for(first, second, state, tmp_path):
    """However deep each lies; the refusal says whose names each has."""
    other = {name: each + 1 for name, each in state.items()}
    path = saved({**under(f"{first}.", state), **under(f"{second}.", other)}, tmp_path)
    with pytest.raises(UnstatedError) as caught:
        read_checkpoint(path, given=GIVEN)
    said = f"holds several models, {first} (timm-vit), {second} (timm-vit); choose by --part {first}"
    assert said in str(caught.value)
    assert_same(read_checkpoint(path, given=GIVEN, part=first), state)
    assert_same(read_checkpoint(path, given=GIVEN, part=second), other)
    if not first.startswith(second.rpartition(".")[0] or first):  # what it is in is enough
        assert_same(read_checkpoint(path, given=GIVEN, part=second.rpartition(".")[0]), other)


def test_a_part_that_is_not_there(state, tmp_path, capsys):
    path = saved({"image_encoder": state}, tmp_path)
    expected = ["begins with 'teacher'; there is image_encoder (timm-vit)"]
    refused(
        capsys, tmp_path, expected, "convert", path, tmp_path / "x", "--to", "hf", "--part", "teacher"
    )


def test_torchvisions_average_is_asked_about(state, tmp_path, capsys):
    """As its references write it: an `AveragedModel` beside the model."""
    cfg = CFG.replace(layer_scale=None, image_size=(21, 21), patch_size=(7, 7))
    weights = {name: torch.from_numpy(each) for name, each in arrays_of(cfg).items()}
    reading = {**GIVEN, "image_size": cfg.image_size, "rope": None, "block": "pre_norm"}
    convert(saved(weights, tmp_path), to="torchvision", out=tmp_path / "tv.pth", given=reading)
    names = torch.load(tmp_path / "tv.pth", weights_only=True)
    average = {"n_averaged": torch.tensor(3), **under("module.", names)}
    path = saved({"model": names, "optimizer": {}, "epoch": 3, "model_ema": average}, tmp_path)
    status, _, err = run(capsys, "inspect", path, "--set", "num_heads=5")
    assert status == 2
    assert "several models, model (torchvision), model_ema.module (torchvision)" in err
    checkpoint = read_checkpoint(path, part="model_ema", given={"num_heads": 5})
    assert checkpoint.dialect.name == "torchvision"


MOMENTS = ("opt_state.0.mu", "1.0.trace", "opt.1.0.nu", "optimizer.exp_avg", "opt.0.v_row", "opt.0.v")


@pytest.mark.parametrize("moment", MOMENTS)
def test_moments_are_no_model(moment, tmp_path):
    from parity.porting.formats import write_npz
    from parity.porting.formats.base import Stored

    convert(own(tmp_path), to="big-vision", out=tmp_path / "bv.npz")
    tensors = read_checkpoint(tmp_path / "bv.npz").container.tensors
    moment = moment.replace(".", "/")
    every = {f"params/{name}": each for name, each in tensors.items()}
    every |= {f"{moment}/{name}": each for name, each in tensors.items()}
    if moment.endswith("/v"):
        every["opt/0/v_row/head/bias"] = Stored.of(np.zeros(1, np.float32))
    write_file(write_npz, tmp_path / "run.npz", every)
    checkpoint = read_checkpoint(tmp_path / "run.npz")
    assert checkpoint.notes[0] == "stripped 'params' from every name"


def own(folder):
    from vit_config import write_weights

    cfg = CFG.replace(
        layer_scale=None,
        act="gelu_tanh",
        class_token=False,
        pool="mean",
        pos_embed_resize="bilinear_corners",
    )
    write_weights(folder / "own.safetensors", cfg, arrays_of(cfg))
    return folder / "own.safetensors"


def test_mocos_projector_is_left_out(state, tmp_path):
    """facebookresearch/moco-v3 keeps it where the head would be."""
    body = {name: each for name, each in state.items() if not name.startswith("head.")}
    projector = {
        "head.0.weight": torch.ones(7, 30),
        "head.1.running_mean": torch.ones(7),
        "head.1.num_batches_tracked": torch.tensor(3),
        "head.3.weight": torch.ones(5, 7),
    }
    path = saved({"state_dict": under("module.base_encoder.", {**body, **projector})}, tmp_path)
    checkpoint = read_checkpoint(path, given=GIVEN)
    assert checkpoint.config.num_classes == 0
    assert_same(checkpoint, body)
    assert checkpoint.notes[1].startswith(
        "left out 4 tensors that are no part of the encoder: head.0.weight"
    )


def test_a_linear_probe_is_not_left_out_with_it(state, tmp_path):
    """MAE's is a batch norm and a classifier, which is no projector."""
    body = {name: each for name, each in state.items() if not name.startswith("head.")}
    probe = {"head.0.running_mean": torch.ones(30), "head.1.weight": torch.ones(7, 30)}
    with pytest.raises(WeightsError, match=r"head\.0\.running_mean is of a linear probe"):
        read_checkpoint(saved({**body, **probe}, tmp_path), given=GIVEN)


def test_lora_that_is_not_merged(state, tmp_path):
    """As PEFT's model has it in memory, and its adapter alone."""
    adapter = {
        f"base_model.model.blocks.{i}.attn.qkv.lora_{side}.default.weight": torch.ones(shape)
        for i in range(2)
        for side, shape in (("A", (2, 30)), ("B", (90, 2)))
    }
    tuned = {
        "base_model.model." + name.replace("attn.qkv.", "attn.qkv.base_layer."): each
        for name, each in state.items()
    }
    for content in ({**tuned, **adapter}, adapter):
        with pytest.raises(WeightsError) as caught:
            read_checkpoint(saved(content, tmp_path), given=GIVEN)
        assert "a LoRA of PEFT that is not merged into its weights (4 matrices of rank 2" in str(
            caught.value
        )
        assert "merge_and_unload" in str(caught.value)


def test_shards_of_fsdp(state, tmp_path):
    content = {
        "_fsdp_wrapped_module._flat_param": torch.ones(1000),
        "blocks.0._flat_param": torch.ones(5),
    }
    with pytest.raises(WeightsError, match=r"parameters that FSDP joined and cut.*FULL_STATE_DICT"):
        read_checkpoint(saved(content, tmp_path))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("cait_xxs24_224", "CaiT"),
        ("xcit_nano_12_p16_224", "XCiT"),
        ("convit_tiny", "ConViT"),
        ("swin_tiny_patch4_window7_224", "Swin"),
        ("samvit_base_patch16_224", "SAM"),
        ("vit_relpos_small_patch16_224", "relative positions from an MLP"),
        ("mixer_s32_224", "MLP-Mixer"),
        ("convnext_atto", "ConvNeXt"),
        ("resnet18", "ResNet"),
    ],
)
def test_others_are_refused_by_their_right_name(name, what, tmp_path):
    from evidence.timm_sweep.peer import import_timm

    with torch.device("meta"):
        model = import_timm().create_model(name)
    state = {key: torch.zeros(()).expand(each.shape) for key, each in model.state_dict().items()}
    for content in (state, {"state_dict": under("module.", state)}):
        with pytest.raises(WeightsError, match=f"is of .*{what}.*which is not converted"):
            read_checkpoint(saved(content, tmp_path))


def test_the_model_type_of_config_json_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "dpt"}))
    path = tmp_path / "pytorch_model.bin"
    torch.save({"neck.0.x": torch.ones(3)}, path)
    with pytest.raises(WeightsError, match=r"config\.json says model_type = dpt.*neck\.0\.x"):
        read_checkpoint(tmp_path)


def test_a_spectrogram_transformer_is_no_deit(tmp_path):
    """Its names are DeiT's; its config.json, or its classifier, tells."""
    sizes = {"max_length": 48, "num_mel_bins": 32}
    entries = {**SIZES, **MLP, "patch_size": 16, "image_size": 32, **sizes}
    bare = save(build("ASTModel", "ASTConfig", **entries), tmp_path / "bare")
    said = "is of an Audio Spectrogram Transformer, which is not converted"
    with pytest.raises(WeightsError, match=said):
        read_checkpoint(bare)
    head = save(build("ASTForAudioClassification", "ASTConfig", **entries), tmp_path / "head")
    (head / "config.json").unlink()
    with pytest.raises(WeightsError, match="is of an Audio Spectrogram Transformer"):
        read_checkpoint(head)


def test_the_tower_of_a_larger_model_has_its_own_entries(tmp_path):
    """A VisionEncoderDecoderModel, and whatever has a vision_config."""
    model = build("ViTModel", "ViTConfig", **SQUARE, **MLP, add_pooling_layer=False)
    folder = save(model, tmp_path / "vit")
    alone = read_checkpoint(folder)
    config = json.loads((folder / "config.json").read_text())
    for section, prefix in (("encoder", "encoder."), ("vision_config", "model.vision_tower.")):
        whole = tmp_path / section
        whole.mkdir()
        names = {
            f"{prefix}{name}": torch.from_numpy(each.load()) for name, each in alone.tensors.items()
        }
        torch.save({**names, "decoder.x": torch.ones(3)}, whole / "pytorch_model.bin")
        larger = {"model_type": "larger", section: config, "text_config": {"model_type": "gpt2"}}
        (whole / "config.json").write_text(json.dumps(larger))
        checkpoint = read_checkpoint(whole)
        assert (checkpoint.config, checkpoint.dialect.name) == (alone.config, "hf-vit")
        assert checkpoint.notes[0] == f"took {section} of config.json, whose model_type is larger"
