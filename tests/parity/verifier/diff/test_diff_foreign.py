"""`parity diff` and `parity diagnose` on models of other libraries, and on faults put into them."""

import copy
import importlib.util
from itertools import product

import jax
import pytest
import torch
from torch import nn

import vit_jax
from parity.porting.conversion import convert
from parity.verifier.diagnose.diagnosis import diagnose
from parity.verifier.diff import InProcess, compare_sides, subject_of
from tests.parity.porting.dialects import test_dialect_torchvision as torchvision_models
from tests.parity.porting.dialects import test_dialect_vit_pytorch as vit_pytorch_models
from tests.support import hf_models, timm_models
from tests.support.foreign import compared, side, twins_of
from vit_torch.weights import to_numpy

EAGER = {"attn_implementation": "eager"}
HF = {**hf_models.SIZES, **hf_models.MLP, **hf_models.CLASSES}
SQUARE = {**hf_models.SQUARE, **hf_models.CLASSES, **EAGER}
REGISTERS = {"num_register_tokens": 2, "use_swiglu_ffn": True}

MODELS = {
    "timm": (lambda: timm_models.small("vit_tiny_patch16_224"), {}),
    "torchvision": (torchvision_models.build, torchvision_models.HEADS),
    "vit-pytorch": (vit_pytorch_models.build, vit_pytorch_models.GIVEN),
    "vit-pytorch simple": (vit_pytorch_models.build_simple, vit_pytorch_models.GIVEN),
    "dinov2": (
        lambda: hf_models.build("Dinov2ForImageClassification", "Dinov2Config", **SQUARE),
        {},
    ),
    "dinov2 registers": (
        lambda: hf_models.build(
            "Dinov2WithRegistersForImageClassification",
            "Dinov2WithRegistersConfig",
            **SQUARE,
            **REGISTERS,
        ),
        {},
    ),
}


def model_and_twins(name, folder):
    build, given = MODELS[name]
    model = build()
    return model, twins_of(model, folder, **given)


def edited(model, edit):
    model = copy.deepcopy(model)
    edit(model)
    return model


def assert_located(difference, stage, where, where_b, cause):
    """In the first block, and in all by their operations."""
    first = difference.first
    assert (first.stage, first.where, first.where_b) == (stage, where, where_b)
    assert [place.times for place in difference.lines.places] == [3]
    causes = diagnose(difference).causes
    assert [each.name for each in causes[:1]] == ([cause] if cause else [])


def _models():
    """Every model in float64, the first in float32 too; a share of the others."""
    for at, (name, dtype) in enumerate(product(MODELS, ("float64", "float32"))):
        always = dtype == "float64" or at < 2
        yield pytest.param(name, dtype, marks=[] if always else pytest.mark.exhaustive)


@pytest.mark.parametrize(("name", "dtype"), [*_models()])
def test_a_model_and_our_twin_on_its_weights_are_equal(name, dtype, tmp_path):
    model, twins = model_and_twins(name, tmp_path)
    difference = compared(model, twins.torch, twins.images, dtype)
    assert difference.equal, difference.first
    compared_tensors = {each.stage: len(each.judged) for each in difference.comparisons}
    assert compared_tensors["forward"] >= 56
    assert compared_tensors["backward"] >= 50


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit-pytorch"])
def test_across_frameworks_too(name, tmp_path):
    model, twins = model_and_twins(name, tmp_path)
    difference = compared(model, twins.jax, twins.images)
    assert difference.equal, difference.first


def test_norms_inside_of_attention_are_no_difference(tmp_path):
    """vit-pytorch's attention and MLP begin with their norms: they return the same as ours, and are
    given something else."""
    model, twins = model_and_twins("vit-pytorch", tmp_path)
    alignment = compared(model, twins.torch, twins.images).alignment
    assert alignment.path_in_b("transformer.layers.1.0") == "blocks.1.attn"
    ports = {p.a.port for p in alignment.pairs if p.a.path == "transformer.layers.1.0"}
    assert ports == {"out"}
    assert alignment.path_in_b("transformer.layers.1.0.norm") == "blocks.1.norm1"


@pytest.fixture(scope="module")
def hf_pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hf")
    model = timm_models.small("vit_tiny_patch16_224")
    convert(timm_models.saved(folder / "timm", model), to="hf-vit", out=folder / "hf")
    images = torch.randn(2, *model.default_cfg["input_size"], generator=torch.Generator().manual_seed(1))
    size = model.patch_embed.img_size
    images = images[..., : size[0], : size[1]].double().numpy()
    return model, folder / "hf", images


def load_hf(folder, attention="sdpa"):
    kind = hf_models.transformers.AutoModelForImageClassification
    return kind.from_pretrained(folder, attn_implementation=attention).double().eval()


def test_transformers_on_the_weights_of_timm_s_is_equal(hf_pair):
    model, folder, images = hf_pair
    difference = compared(model, load_hf(folder), images)
    assert difference.equal, difference.first


def test_eager_softmax_runs_in_float32_which_float64_shows(hf_pair):
    model, folder, images = hf_pair
    eager = load_hf(folder, "eager")
    assert compared(model, eager, images, "float32").equal
    difference = compared(model, eager, images)
    assert difference.first.where == "blocks.0.attn"
    assert 1e-9 < difference.first.judged.error < 1e-6


@pytest.mark.parametrize(
    ("edit", "where", "where_b", "cause"),
    [
        (
            lambda layer: setattr(layer.layernorm_before, "eps", 1e-12),
            "blocks.0.norm1",
            "vit.layers.0.layernorm_before",
            "epsilon",
        ),
        (
            lambda layer: setattr(layer.attention, "scaling", 1 / 6),
            "blocks.0.attn",
            "vit.layers.0.attention",
            "factor",
        ),
    ],
)
def test_faults_in_transformers(edit, where, where_b, cause, hf_pair):
    model, folder, images = hf_pair

    def everywhere(model):
        for layer in model.vit.layers:
            edit(layer)

    difference = compared(model, edited(load_hf(folder), everywhere), images)
    assert_located(difference, "forward", where, where_b, cause)


@pytest.fixture(scope="module")
def torchvision_pair(tmp_path_factory):
    return model_and_twins("torchvision", tmp_path_factory.mktemp("torchvision"))


def test_multi_head_attention_is_a_leaf_that_agrees(torchvision_pair):
    """It never calls its projection as a module, and is given one tensor three times."""
    model, twins = torchvision_pair
    difference = compared(model, twins.torch, twins.images)
    assert difference.equal, difference.first
    attention = "encoder.layers.encoder_layer_1.self_attention"
    assert difference.alignment.path_in_b(attention) == "blocks.1.attn"
    compared_ports = {
        (each.site.stage, each.site.port)
        for c in difference.comparisons
        for each in c.judged
        if each.site.path == attention and each.site.stage in ("forward", "backward")
    }
    assert {("forward", "in"), ("backward", "in")} <= compared_ports
    assert "out" in {port.partition("[")[0] for _, port in compared_ports}


def test_tanh_gelu_in_torchvision(torchvision_pair):
    model, twins = torchvision_pair

    def edit(model):
        for layer in model.encoder.layers:
            layer.mlp[1] = nn.GELU("tanh")

    assert_located(
        compared(twins.torch, edited(model, edit), twins.images),
        "forward",
        "blocks.0.mlp.act",
        "encoder.layers.encoder_layer_0.mlp.1",
        "activation",
    )


def test_a_fault_inside_of_a_leaf_is_the_leaf_s_and_is_said_to_be_unknown(torchvision_pair):
    model, twins = torchvision_pair

    def edit(model):
        for layer in model.encoder.layers:
            layer.self_attention.num_heads, layer.self_attention.head_dim = 6, 5

    difference = compared(twins.torch, edited(model, edit), twins.images)
    assert_located(
        difference,
        "forward",
        "blocks.0.attn",
        "encoder.layers.encoder_layer_0.self_attention",
        None,
    )
    assert "no single exchange" in diagnose(difference).unknown


def test_a_scale_of_attention_that_is_an_attribute(tmp_path):
    model, twins = model_and_twins("timm", tmp_path)

    def edit(model):
        for block in model.blocks:
            block.attn.scale *= 1.5

    difference = compared(twins.torch, edited(model, edit), twins.images)
    assert_located(difference, "forward", "blocks.0.attn", "blocks.0.attn", "factor")


def test_another_activation_between_the_halves_of_a_swiglu(tmp_path):
    model, twins = model_and_twins("dinov2 registers", tmp_path)

    def edit(model):
        for layer in model.dinov2_with_registers.encoder.layer:
            layer.mlp.act_fn = nn.GELU()

    difference = compared(twins.torch, edited(model, edit), twins.images)
    where = "dinov2_with_registers.encoder.layer.0.mlp.act_fn"
    assert_located(difference, "forward", "blocks.0.mlp.act", where, "activation")


@pytest.mark.slow
@pytest.mark.parametrize("exact_gelu", [True, False])
def test_linen_against_nnx(exact_gelu):
    """Flax against Flax: Linen in the public style, with its fast variance, and our NNX twin."""
    spec = importlib.util.spec_from_file_location("port", "docs/port.py")
    port = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(port)
    model, _ = port.original()
    arrays = {name: to_numpy(value) for name, value in model.state_dict().items()}
    with jax.enable_x64(True):
        twin = vit_jax.from_arrays(model.cfg, arrays)
    linen = InProcess(subject_of("linen", port.port(exact_gelu=exact_gelu)), dtype="float64")
    difference = compare_sides(side(twin, port.IMAGES.transpose(0, 3, 1, 2)), linen)
    if exact_gelu:
        assert difference.equal, difference.first
    else:
        assert difference.first.where_b == "block_0.mlp"
        assert diagnose(difference).causes[0].name == "activation"
