"""Attention kernels: chosen once, fused for inference; the reference wherever something is proven."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import functional as F

import vit_jax
import vit_torch
from tests.support.peers import EXACT, nchw, random_images, redrawn, run_jax, run_torch
from tests.support.tiny import TINY, VARIANTS, error, variant
from vit_config import InputError, TextConfig, read_weights, write_weights
from vit_jax.functional import make_apply
from vit_jax.heads import Heads as JaxHeads
from vit_jax.kernels import attend
from vit_jax.rules import softmax_product
from vit_torch.heads import Heads as TorchHeads

ARRAYS = {name: array.astype(np.float32) for name, array in redrawn(TINY).items()}
IMAGES = random_images(TINY).astype(np.float32)


def fused_calls(model, *args, **options):
    """How often a model of PyTorch calls the fused kernel."""
    with mock.patch.object(
        F, "scaled_dot_product_attention", side_effect=F.scaled_dot_product_attention
    ) as called:
        model(*args, **options)
    return called.call_count


def test_fused_for_inference_alone():
    model = vit_torch.from_arrays(TINY.replace(dropout_attention=0.1), ARRAYS)
    images = nchw(IMAGES)
    assert fused_calls(model, images) == 0  # gradients are recorded
    with torch.no_grad():
        assert fused_calls(model, images) == TINY.depth
        assert fused_calls(model, images, return_attention=True) == 0
        assert fused_calls(model.train(), images) == 0  # weights are dropped
    with torch.inference_mode():
        assert fused_calls(model.eval(), images) == TINY.depth
        vit_torch.set_kernel(model, "reference")
        assert fused_calls(model, images) == 0
    vit_torch.set_kernel(model, "sdpa")
    assert fused_calls(model, images) == TINY.depth


@pytest.mark.parametrize("name", list(VARIANTS))
def test_fused_is_the_same_function_in_every_schema(name):
    cfg, arrays = variant(name), redrawn(variant(name))
    images = random_images(cfg)
    with torch.device("meta"):  # where what is not made on the images' device would be
        fused, reference = (run_torch(cfg, arrays, images, kernel=k) for k in ("auto", "reference"))
    assert error(fused.logits, reference.logits) <= EXACT
    assert error(fused.patch_tokens, reference.patch_tokens) <= EXACT


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_fused_is_no_less_accurate(dtype):
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 4, 197, 3, 64, generator=generator).to(getattr(torch, dtype))
    exact, _ = vit_torch.kernels.attend(q.double(), k.double(), v.double())
    fused, reference = (
        error(vit_torch.kernels.attend(q, k, v, kernel=kernel)[0].double(), exact)
        for kernel in ("sdpa", "reference")
    )
    assert fused <= 1.2 * reference


def test_what_jax_chooses_is_the_reference():
    for a, b in zip(
        run_jax(TINY, ARRAYS, IMAGES, kernel="auto"), run_jax(TINY, ARRAYS, IMAGES), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    weights = run_jax(TINY, ARRAYS, IMAGES, kernel="auto", return_attention=True).attention
    assert weights[0].shape == (2, 5, 10, 10)


@pytest.mark.parametrize("name", ["plain", "branches", "parallel", "differential"])
def test_one_setter_reaches_every_layer(name):
    cfg = variant(name)
    for twin, heads, fast in ((vit_jax, JaxHeads, "xla"), (vit_torch, TorchHeads, "sdpa")):
        model = twin.weights.abstract_model(cfg, kernel="reference")
        layers = [m for _, m in twin.leaves.walk(model) if isinstance(m, heads)]
        assert [layer.kernel for layer in layers] == ["reference"] * len(layers)
        assert len(layers) == cfg.depth * cfg.num_parallel
        twin.set_kernel(model, fast)
        assert {layer.kernel for layer in layers} == {fast}
        with pytest.raises(InputError, match=rf"kernel = 'flash'.* are auto, reference, {fast}"):
            twin.set_kernel(model, "flash")


@pytest.mark.parametrize("twin", [vit_jax, vit_torch])
def test_a_model_of_given_weights_has_the_given_kernel(twin):
    text = TextConfig(hidden_size=8, num_heads=2, depth=1, mlp_dim=8, vocab_size=5, context_length=3)
    abstract = twin.weights.abstract_text(text, kernel="reference")
    arrays = {leaf.name: np.zeros(leaf.shape, np.float32) for leaf in twin.leaves.leaves(abstract)}
    for model in (
        abstract,
        twin.text_from_arrays(text, arrays, kernel="reference"),
        twin.from_arrays(TINY, ARRAYS, kernel="reference"),
    ):
        assert model.blocks[0].attn.kernel == "reference"


def test_a_kernel_is_in_no_file(tmp_path):
    path = tmp_path / "model.safetensors"
    fast = vit_torch.from_arrays(TINY, ARRAYS, kernel="sdpa")
    write_weights(path, fast.cfg, vit_torch.to_arrays(fast))
    assert read_weights(path).config == TINY
    assert b"sdpa" not in path.read_bytes()
    assert "kernel" not in TINY.fields()


def test_a_function_of_parameters_has_its_kernel_too():
    params = {
        name: jnp.asarray(value)
        for name, value in vit_jax.functional.get_params(vit_jax.from_arrays(TINY, ARRAYS)).items()
    }
    with mock.patch.object(jax.nn, "dot_product_attention") as called:
        called.side_effect = lambda q, *_, **__: q
        for kernel, calls in (("auto", 0), ("reference", 0), ("xla", TINY.depth)):
            called.reset_mock()
            jax.eval_shape(make_apply(TINY, kernel=kernel), params, IMAGES)
            assert called.call_count == calls


def test_weights_are_divided_first_only_where_their_type_is_narrow():
    with mock.patch.object(vit_jax.kernels, "softmax_product", side_effect=softmax_product) as called:
        for dtype, calls in ((jnp.float32, 1), (jnp.bfloat16, 1)):
            x = jnp.ones((1, 2, 3, 4), dtype)
            attend(x, x, x)
            assert called.call_count == calls


def test_branches_of_a_fast_kernel_have_no_weights():
    cfg = variant("branches").replace(depth=1)
    params = vit_jax.functional.get_params(vit_jax.weights.abstract_model(cfg))
    output = jax.eval_shape(make_apply(cfg, kernel="xla"), params, IMAGES)
    assert output.logits.shape == (2, 11)


def test_values_wider_than_keys_are_mixed_in_parts():
    cfg = variant("differential")
    given = {name: array.astype(np.float32) for name, array in redrawn(cfg).items()}
    params = vit_jax.functional.get_params(vit_jax.from_arrays(cfg, given))
    images = random_images(cfg).astype(np.float32)
    ours, fast = (make_apply(cfg, kernel=kernel)(params, images) for kernel in ("reference", "xla"))
    assert error(fast.logits, ours.logits) <= 1e-5


def test_compiling_needs_no_graph_break():
    model = vit_torch.from_arrays(TINY, ARRAYS)
    images = nchw(IMAGES)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        for options in ({}, {"return_attention": True}, {}):
            ours, theirs = compiled(images, **options), model(images, **options)
            assert torch.equal(ours.logits, theirs.logits)
            assert (ours.attention is None) == (not options)


@pytest.mark.parametrize(
    ("queries", "keys", "biased"),
    [
        (5, 9, True),
        pytest.param(1, 9, False, marks=pytest.mark.exhaustive),
        pytest.param(8, 16, True, marks=pytest.mark.exhaustive),
    ],
)
def test_tokens_added_for_cudnn_change_nothing(queries, keys, biased):
    """cuDNN takes gradients of even numbers of tokens alone; here another kernel stands for it."""
    stream = np.random.default_rng(0)
    q, k, v = (
        jnp.asarray(stream.standard_normal((2, n, 3, 4)), jnp.float32) for n in (queries, keys, keys)
    )
    bias = jnp.asarray(stream.standard_normal((3, queries, keys)), jnp.float32) if biased else None
    attention, sizes = jax.nn.dot_product_attention, []

    def instead(q, k, v, bias, *, implementation, **how):
        sizes.append((q.shape[1] % 8, k.shape[1] % 8, "query_seq_lengths" in how))
        assert implementation == "cudnn"
        return attention(q, k, v, bias, implementation="xla", **how)

    def run(kernel):
        def loss(q, k, v):
            y, _ = attend(q, k, v, bias=bias, kernel=kernel)
            assert y.shape == q.shape
            return (y**2).sum()

        return jax.value_and_grad(loss, argnums=(0, 1, 2))(q, k, v)

    with mock.patch.object(jax.nn, "dot_product_attention", instead):
        actual, gradients = run("cudnn")
    assert sizes == [(0, 0, queries % 8 > 0)]
    wanted, expected = run("reference")
    assert abs(actual - wanted) <= 1e-6 * wanted
    for ours, theirs in zip(gradients, expected, strict=True):
        assert ours.shape == theirs.shape
        assert error(np.asarray(ours), np.asarray(theirs)) <= 2e-6
