"""Images are compared with texts as transformers' own CLIP and SigLIP do it."""

import json

import jax
import numpy as np
import pytest
import torch

import parity
from parity.cli import main
from tests.support import text_models
from tests.support.dialect_proof import redraw
from tests.support.hf_models import transformers
from tests.support.tiny import error
from vit_config import ConfigError, InputError, Preprocess, WeightsError
from vit_config.errors import UnstatedError

PIXELS = Preprocess(mean=(0.4, 0.5, 0.6), std=(0.3, 0.2, 0.4))
IMAGES = np.random.default_rng(5).integers(0, 256, (2, 15, 15, 3), np.uint8)
IDS = text_models.texts(5)


def expected(model, loaded, ids=IDS):
    """Transformers' logits and probabilities for the same pixels."""
    dtype = next(model.parameters()).dtype
    pixels = torch.from_numpy(loaded.prepare(IMAGES)).permute(0, 3, 1, 2).to(dtype)
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(ids), pixel_values=pixels).logits_per_image
    of_siglip = hasattr(model, "logit_bias")
    return logits.numpy(), (logits.sigmoid() if of_siglip else logits.softmax(1)).numpy()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders as transformers writes them, by kind and type, with the models."""
    made = {}
    for kind in text_models.KINDS:
        for dtype in (torch.float32, torch.float64):
            model = text_models.build(kind).to(dtype)
            folder = tmp_path_factory.mktemp(kind.replace(" ", "-"))
            model.save_pretrained(folder)
            made[kind, dtype] = model, folder
    return made


@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("kind", text_models.KINDS)
def test_it_is_transformers(kind, dtype, limit, framework, saved):
    model, folder = saved[kind, dtype]
    with jax.enable_x64(dtype == torch.float64):
        loaded = parity.load(folder, framework=framework, preprocess=PIXELS)
        answer = loaded.zero_shot(IMAGES, IDS)
    factor = np.exp(model.logit_scale.item())
    for one, other in zip(answer, expected(model, loaded), strict=True):
        # of a cosine, which is a number up to 1: those of drawn weights are all near 0
        assert np.abs(one - other).max() <= limit * factor
        assert dtype == torch.float32 or error(one, other) <= limit
    assert loaded.texts.origins["act"] == "config files"
    assert loaded.texts.origins["vocab_size"] == "shapes"


@pytest.mark.parametrize("kind", text_models.KINDS)
def test_a_model_in_memory_is_compared_too(kind):
    model = text_models.build(kind)
    with jax.enable_x64(True):
        loaded = parity.load(model, framework="jax", preprocess=PIXELS)
        answer = loaded.zero_shot(IMAGES, IDS)
    assert error(answer.logits, expected(model, loaded)[0]) <= 1e-12


def test_many_texts_are_embedded_in_batches(saved):
    model, folder = saved["clip", torch.float32]
    loaded = parity.load(folder, framework="torch", preprocess=PIXELS)
    ids = text_models.texts(70)
    assert np.abs(loaded.zero_shot(IMAGES, ids).logits - expected(model, loaded, ids)[0]).max() <= 1e-6


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_both_towers_compute_in_the_type_that_is_asked_for(framework, saved):
    model, folder = saved["clip", torch.float32]
    loaded = parity.load(folder, framework=framework, preprocess=PIXELS, dtype="bfloat16")
    assert "bfloat16" in str(loaded.texts.model.token_embed.dtype)
    assert 1e-6 < error(loaded.zero_shot(IMAGES, IDS).logits, expected(model, loaded)[0]) < 0.2


def changed(folder, tmp_path, change):
    """A copy of a folder whose config.json is another."""
    (copy := tmp_path / "copy").mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    config = json.loads((copy / "config.json").read_text())
    change(config)
    (copy / "config.json").write_text(json.dumps(config))
    return copy


FAULTS = {
    "act": lambda config: config["text_config"].update(hidden_act="gelu"),
    "epsilon": lambda config: config["text_config"].update(layer_norm_eps=1e-3),
    "heads": lambda config: config["text_config"].update(num_attention_heads=4),
    "end": lambda config: config["text_config"].update(eos_token_id=int(IDS[0, 0])),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_entry_of_the_config_is_what_is_computed(fault, saved, tmp_path):
    model, folder = saved["clip", torch.float64]
    folder = changed(folder, tmp_path, FAULTS[fault])
    loaded = parity.load(folder, framework="torch", preprocess=PIXELS)
    ids = IDS if fault != "end" else np.where(IDS == text_models.END, IDS[0, 0], IDS)
    wrong = loaded.zero_shot(IMAGES, ids).logits
    assert error(wrong, expected(model, loaded, ids)[0]) > 1e-6
    again = type(model).from_pretrained(folder).double().eval()
    assert error(wrong, expected(again, loaded, ids)[0]) <= 1e-12


def test_what_older_files_call_text_config_dict_is_read(saved, tmp_path):
    model, folder = saved["clip", torch.float64]
    inner = model.config.text_config.to_diff_dict()
    folder = changed(folder, tmp_path, lambda c: c.update(text_config_dict=inner, text_config={}))
    loaded = parity.load(folder, framework="torch", preprocess=PIXELS)
    assert error(loaded.zero_shot(IMAGES, IDS).logits, expected(model, loaded)[0]) <= 1e-12


def without(*entries):
    def change(config):
        config["text_config"].update(dict.fromkeys(entries))

    return change


def test_what_the_files_leave_open_is_asked_for_and_never_guessed(saved, tmp_path):
    model, folder = saved["clip", torch.float64]
    gone = without("hidden_act", "layer_norm_eps", "num_attention_heads", "eos_token_id")
    folder = changed(folder, tmp_path, gone)
    loaded = parity.load(folder, framework="torch", preprocess=PIXELS)
    assert loaded.logits(IMAGES).shape == (2, 17)  # which needs no text tower
    with pytest.raises(UnstatedError) as asked:
        loaded.zero_shot(IMAGES, IDS)
    assert asked.value.fields == ("text.num_heads", "text.norm_eps", "text.act", "text.pool")
    assert "--set text.num_heads=N" in str(asked.value)
    assert "text.act: gelu, gelu_tanh" in str(asked.value)
    given = {"text.num_heads": 3, "text.norm_eps": 1e-5, "text.act": "quick_gelu", "text.pool": "eos"}
    with pytest.raises(UnstatedError, match=r"cannot infer text\.eos_id"):
        parity.load(folder, framework="torch", preprocess=PIXELS, given=given).zero_shot(IMAGES, IDS)
    given["text.eos_id"] = text_models.END
    loaded = parity.load(folder, framework="torch", preprocess=PIXELS, given=given)
    assert error(loaded.zero_shot(IMAGES, IDS).logits, expected(model, loaded)[0]) <= 1e-12
    assert loaded.texts.origins["act"] == "given"


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"given": {"text.act": "relu"}}, ConfigError, r"text\.act = relu \(given\), but quick_gelu"),
        ({"given": {"text.acts": "relu"}}, ConfigError, "no field 'acts'"),
        ({"given": {"text.depth": 3}}, ConfigError, r"text\.depth = 2 \(shapes\), but 3"),
        ({"given": {"text.num_heads": 3, "text.eos_id": 1}}, ConfigError, r"text\.eos_id = 1"),
    ],
)
def test_a_statement_that_contradicts_the_file_is_refused(options, kind, said, saved):
    folder = saved["clip", torch.float64][1]
    with pytest.raises(kind, match=said):
        parity.load(folder, framework="torch", preprocess=PIXELS, **options).zero_shot(IMAGES, IDS)


def test_what_is_overridden_is_computed(saved):
    model, folder = saved["clip", torch.float64]
    override = {"text.act": "gelu"}
    loaded = parity.load(folder, framework="torch", preprocess=PIXELS, override=override)
    assert error(loaded.zero_shot(IMAGES, IDS).logits, expected(model, loaded)[0]) > 1e-6
    assert loaded.texts.origins["act"] == "overridden"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda state: state.pop("text_model.final_layer_norm.bias"), r"norm\.bias: missing"),
        (lambda state: state.pop("text_projection.weight"), "embedded in 24 numbers, images in 17"),
        (
            lambda state: state.update({"text_model.extra.weight": torch.zeros(2)}),
            "unknown to hf-clip-text",
        ),
        (lambda state: state.pop("text_model.encoder.layers.0.mlp.fc1.weight"), "no matrix for blocks"),
        (
            lambda state: state.update(logit_scale=torch.tensor(3)),
            "logit_scale: of type int64, expected floating-point",
        ),
        (
            lambda state: state.update(logit_scale=torch.zeros(2)),
            r"logit_scale: shape \(2,\)",
        ),
    ],
)
def test_tensors_that_are_not_those_of_a_tower_are_named(change, said, saved, tmp_path):
    model, folder = saved["clip", torch.float64]
    copy = changed(folder, tmp_path, lambda config: None)
    state = dict(model.state_dict())
    change(state)
    (copy / "model.safetensors").unlink()
    torch.save(state, copy / "pytorch_model.bin")
    loaded = parity.load(copy, framework="torch", preprocess=PIXELS)
    with pytest.raises(WeightsError, match=said):
        loaded.texts  # noqa: B018


def test_tensors_of_several_types_are_widened(saved, tmp_path):
    model, folder = saved["clip", torch.float32]
    copy = changed(folder, tmp_path, lambda config: None)
    state = {n: t.half() if "mlp" in n else t for n, t in model.state_dict().items()}
    (copy / "model.safetensors").unlink()
    torch.save(state, copy / "pytorch_model.bin")
    loaded = parity.load(copy, framework="torch", preprocess=PIXELS)
    assert loaded.texts.model.blocks[0].mlp.fc1.weight.dtype == torch.float32
    assert 0 < error(loaded.zero_shot(IMAGES, IDS).logits, expected(model, loaded)[0]) < 0.02


def test_a_file_without_a_text_tower_says_so(saved, tmp_path):
    model, _ = saved["clip", torch.float64]
    alone = transformers.CLIPVisionModelWithProjection(
        transformers.CLIPVisionConfig(**text_models.VISION, projection_dim=17)
    )
    alone.save_pretrained(tmp_path)
    loaded = parity.load(tmp_path, framework="torch", preprocess=PIXELS)
    with pytest.raises(InputError, match="no text tower of a known dialect"):
        loaded.zero_shot(IMAGES, IDS)
    with pytest.raises(InputError, match="token id 59"):
        parity.load(model, framework="torch", preprocess=PIXELS).zero_shot(IMAGES, IDS + 2)


def test_the_tower_is_shown_by_inspect(saved, tmp_path, capsys):
    folder = saved["clip", torch.float64][1]
    assert main(["inspect", str(folder), "--json", str(tmp_path / "it.json")]) == 0
    capsys.readouterr()
    content = json.loads((tmp_path / "it.json").read_text())
    assert "hf-clip-text: vocab_size=59, context_length=13" in json.dumps(content)
    folder = changed(folder, tmp_path, without("hidden_act"))
    assert main(["inspect", str(folder)]) == 0
    assert "cannot infer text.act" in " ".join(capsys.readouterr().out.split())


def test_the_texts_of_siglip_2_are_embedded(tmp_path, x64):
    """Its images are patches of any grid; of its text tower nothing else is new."""
    vision = {name: each for name, each in text_models.VISION.items() if name != "image_size"}
    text = {**text_models.TEXT, "eos_token_id": text_models.END, "projection_size": 20}
    config = transformers.Siglip2Config(text_config=text, vision_config={**vision, "num_patches": 9})
    model = redraw(transformers.Siglip2Model(config))
    model.save_pretrained(tmp_path / "saved")
    with torch.no_grad():
        expected = model.get_text_features(torch.from_numpy(IDS)).pooler_output.numpy()
    loaded = parity.load(tmp_path / "saved", framework="jax")
    assert error(loaded.texts.embed(IDS), expected) <= 1e-12
    parity.convert(tmp_path / "saved", to="hf-siglip2-vision", out=tmp_path / "again", text=True)
    again = transformers.Siglip2Model.from_pretrained(tmp_path / "again")
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
