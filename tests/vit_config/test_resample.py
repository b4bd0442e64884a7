"""Every rule that fits a table to another grid, against the library whose rule it is, in float64."""

import itertools

import jax
import numpy as np
import pytest
import scipy.ndimage
import torch
import torch.nn.functional as F

from tests.support.peers import import_timm
from tests.support.tiny import variant
from vit_config import ConfigError, InputError
from vit_config.numerics.resample import (
    AXIS_RULES,
    PATCH_RULES,
    RULES,
    apply_matrices,
    axis_matrix,
    grid_matrices,
    patch_matrices,
    relative_matrices,
    resample_rows,
    table_matrices,
)

pytestmark = pytest.mark.slow

timm = import_timm()

EXACT = 1e-12
SINGLE = 8e-6  # the largest deviation where the library computes in float32, of values around 1
D = 3

# up, down, one of each, one side unchanged, a single row, and to a single patch
GRIDS = [
    ((5, 3), (7, 4)),
    ((14, 14), (16, 20)),
    ((37, 16), (16, 13)),
    ((9, 7), (4, 11)),
    ((5, 7), (5, 11)),
    ((8, 3), (5, 3)),
    ((1, 5), (3, 8)),
    ((6, 4), (1, 1)),
]
each_grid = pytest.mark.parametrize(("old", "new"), GRIDS, ids=str)

TORCH_RULES = {
    "bicubic_antialias": {"mode": "bicubic", "antialias": True},
    "bicubic": {"mode": "bicubic"},
    "bilinear": {"mode": "bilinear"},
    "bilinear_antialias": {"mode": "bilinear", "antialias": True},
    "bilinear_corners": {"mode": "bilinear", "align_corners": True},
}
# what timm's interpolator of relative positions makes PyTorch say
timm_interpolates = pytest.mark.filterwarnings(
    "ignore:Using a non-tuple sequence:UserWarning", r"ignore:torch.searchsorted\(\):UserWarning"
)

JAX_RULES = {
    "bicubic_antialias": {"method": "cubic", "antialias": True},
    "bilinear": {"method": "linear", "antialias": False},
    "bilinear_antialias": {"method": "linear", "antialias": True},
}


def draw(*shape: int) -> np.ndarray:
    """Standard normal float64 values that float32 holds exactly."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32).astype(np.float64)


def ours(rule: str, values: np.ndarray, new: tuple[int, int]) -> np.ndarray:
    return apply_matrices(grid_matrices(rule, values.shape[-2:], new), values)


def distance(value, reference) -> float:
    """The largest deviation, of values around 1."""
    value, reference = np.asarray(value), np.asarray(reference)
    assert value.shape == reference.shape
    return float(np.abs(value - reference).max())


def rows(grid: np.ndarray) -> np.ndarray:
    """(D, h, w) as (h * w, D)."""
    return grid.reshape(len(grid), -1).T


@pytest.fixture
def in_double(monkeypatch):
    """timm casts to float32 for the interpolation; let it cast to float64 instead."""
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(timm.layers.patch_embed, "DTYPE_INTERMEDIATE", torch.float64)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@each_grid
@pytest.mark.parametrize("rule", TORCH_RULES)
def test_torch(rule, old, new):
    values = draw(D, *old)
    theirs = F.interpolate(torch.from_numpy(values)[None], size=new, **TORCH_RULES[rule])[0]
    assert distance(ours(rule, values, new), theirs) < EXACT


@pytest.mark.usefixtures("x64")
@each_grid
@pytest.mark.parametrize("rule", JAX_RULES)
def test_jax(rule, old, new):
    values = draw(D, *old)
    theirs = jax.image.resize(values, (D, *new), **JAX_RULES[rule])
    assert distance(ours(rule, values, new), theirs) < EXACT


@each_grid
def test_google(old, new):
    values = draw(D, *old)
    # Google's code leaves `mode` alone; for some sizes rounding then puts the last point outside the
    # table, where scipy has zeros
    theirs = scipy.ndimage.zoom(values, (1, new[0] / old[0], new[1] / old[1]), order=1, mode="nearest")
    assert distance(ours("bilinear_corners", values, new), theirs) < EXACT


@each_grid
def test_dinov2(old, new):
    values = draw(D, *old)
    factors = [float(side + 0.1) / was for side, was in zip(new, old, strict=True)]
    theirs = F.interpolate(torch.from_numpy(values)[None], scale_factor=factors, mode="bicubic")[0]
    assert distance(ours("dinov2", values, new), theirs) < EXACT
    assert distance(ours("dinov2", values, new), ours("bicubic", values, new)) > 1e-3


@pytest.mark.usefixtures("in_double")
@each_grid
@pytest.mark.parametrize("rule", ["bicubic_antialias", "bicubic", "bilinear", "bilinear_antialias"])
def test_timm(rule, old, new):
    prefix_rows = 2
    table = draw(prefix_rows + old[0] * old[1], D)
    theirs = timm.layers.resample_abs_pos_embed(
        torch.from_numpy(table)[None],
        list(new),
        list(old),
        num_prefix_tokens=prefix_rows,
        interpolation=rule.removesuffix("_antialias"),
        antialias=rule.endswith("_antialias"),
    )[0]
    assert distance(resample_rows(table, old, new, rule, prefix_rows), theirs) < EXACT


@pytest.mark.parametrize("new", [(7, 3), (3, 4), (5, 6)], ids=str)
def test_hugging_face(new):
    from transformers import Dinov2Config, Dinov2WithRegistersConfig, ViTConfig
    from transformers.models.dinov2.modeling_dinov2 import Dinov2Embeddings
    from transformers.models.dinov2_with_registers.modeling_dinov2_with_registers import (
        Dinov2WithRegistersEmbeddings,
    )
    from transformers.models.vit.modeling_vit import ViTEmbeddings

    patch, old = 2, (5, 5)  # these models know square tables only
    table = draw(1 + old[0] * old[1], D)
    tokens = torch.empty(1, 1 + new[0] * new[1], D)
    for make, config, rule, bound in [
        (ViTEmbeddings, ViTConfig, "bicubic", EXACT),
        (Dinov2Embeddings, Dinov2Config, "bicubic", SINGLE),
        (Dinov2WithRegistersEmbeddings, Dinov2WithRegistersConfig, "bicubic_antialias", SINGLE),
    ]:
        model = make(config(hidden_size=D, image_size=old[0] * patch, patch_size=patch))
        model.position_embeddings.data = torch.from_numpy(table)[None]
        theirs = model.interpolate_pos_encoding(tokens, new[0] * patch, new[1] * patch)[0].detach()
        assert distance(resample_rows(table, old, new, rule, 1), theirs) < bound


@pytest.mark.parametrize("rule", AXIS_RULES)
def test_every_pair_of_sizes(rule):
    for old, new in itertools.product(range(1, 33), repeat=2):
        matrix = axis_matrix(rule, old, new)
        assert matrix.shape == (new, old)
        assert matrix.dtype == np.float64
        np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=EXACT)
        # the same from either end, but for DINOv2's shift, and Google's single value, which is the first
        if rule != "dinov2" and (rule, new) != ("bilinear_corners", 1):
            np.testing.assert_allclose(matrix, matrix[::-1, ::-1], atol=EXACT)


def test_same_size_is_the_identity():
    for rule, size in itertools.product(AXIS_RULES, range(1, 33)):
        if rule != "dinov2":
            np.testing.assert_array_equal(axis_matrix(rule, size, size), np.eye(size))
    for rule in AXIS_RULES:
        for matrix, size in zip(grid_matrices(rule, (5, 3), (5, 3)), (5, 3), strict=True):
            np.testing.assert_array_equal(matrix, np.eye(size))
    table = draw(2 + 15, D)
    for rule in RULES:
        np.testing.assert_array_equal(resample_rows(table, (5, 3), (5, 3), rule, 2), table)


def test_no_two_rules_are_the_same():
    matrices = {rule: axis_matrix(rule, 7, 4) for rule in AXIS_RULES}
    for one, other in itertools.combinations(AXIS_RULES, 2):
        assert np.abs(matrices[one] - matrices[other]).max() > 1e-3, (one, other)


def test_matrices_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        axis_matrix("bicubic", 5, 7)[0, 0] = 1
    assert axis_matrix("bicubic", 5, 7) is axis_matrix("bicubic", 5, 7)


def test_rows_of_prefix_tokens_stay():
    table = draw(2 + 15, D).astype(np.float32)
    before = table.copy()
    fitted = resample_rows(table, (5, 3), (7, 4), "bicubic", 2)
    assert fitted.shape == (2 + 28, D)
    assert fitted.dtype == np.float64
    np.testing.assert_array_equal(fitted[:2], table[:2])
    np.testing.assert_array_equal(
        fitted[2:], rows(ours("bicubic", table[2:].T.reshape(D, 5, 3), (7, 4)))
    )
    np.testing.assert_array_equal(table, before)


def test_leading_rows():
    table = draw(1 + 15, D)
    np.testing.assert_array_equal(resample_rows(table, (5, 3), (2, 7), "leading_rows", 1), table[:15])
    with pytest.raises(InputError, match=r"has 15 rows for 5x3 patches, 4x4 patches need 16"):
        resample_rows(table, (5, 3), (4, 4), "leading_rows", 1)


@pytest.mark.parametrize("name", ["factorized", "leading_rows"])
def test_a_stretched_table_is_fitted_along_each_axis(name):
    cfg, grid = variant(name), (2, 3)
    rows, columns = table_matrices(
        cfg.replace(pos_embed_resize="bilinear", pos_embed_aspect="stretch"), grid
    )
    fitted = grid_matrices("bilinear", cfg.table_grid, grid)
    np.testing.assert_array_equal(rows, fitted[0])
    np.testing.assert_array_equal(columns, fitted[1])


def test_errors():
    with pytest.raises(ConfigError, match='rule = "nearest" is unknown; use one of bicubic_antialias'):
        resample_rows(draw(15, D), (5, 3), (7, 4), "nearest", 0)
    for rule in ("nearest", "leading_rows"):
        with pytest.raises(ConfigError, match=f'rule = "{rule}" is unknown'):
            axis_matrix(rule, 5, 5)
        with pytest.raises(ConfigError, match=f'rule = "{rule}" is unknown'):
            grid_matrices(rule, (5, 3), (5, 3))
    with pytest.raises(ConfigError, match='patch_rule = "dinov2" is unknown'):
        patch_matrices((5, 3), (7, 4), "dinov2")
    for shape in [(15, D), (1, 16, D)]:
        with pytest.raises(InputError, match=r"5x3 patches and 1 tokens before them need \(16, D\)"):
            resample_rows(draw(*shape), (5, 3), (7, 4), "bicubic", 1)


@pytest.mark.parametrize(("old", "new"), [g for g in GRIDS if max(*g[0], *g[1]) < 14], ids=str)
@pytest.mark.parametrize("rule", ["bilinear", "bicubic_antialias"])
def test_patch_kernel_is_the_pseudo_inverse(rule, old, new):
    """The definition, over both axes at once: the pseudo-inverse of the transposed resizing."""
    kernel = draw(D, *old)
    basis = torch.eye(old[0] * old[1], dtype=torch.float64).reshape(-1, 1, *old)
    resized = F.interpolate(basis, size=new, **TORCH_RULES[rule]).reshape(len(basis), -1)  # (old, new)
    expected = np.linalg.pinv(resized.numpy(), rcond=1e-12) @ rows(kernel)
    assert distance(rows(apply_matrices(patch_matrices(old, new, rule), kernel)), expected) < EXACT


@pytest.mark.usefixtures("in_double")
@pytest.mark.parametrize(("old", "new"), [((5, 3), (7, 4)), ((8, 7), (5, 3)), ((7, 5), (7, 8))], ids=str)
def test_patch_kernel_of_timm(old, new):
    kernel = draw(2, D, *old)
    theirs = timm.layers.patch_embed.resample_patch_embed(torch.from_numpy(kernel), list(new))
    assert (
        distance(apply_matrices(patch_matrices(old, new, "bicubic_antialias"), kernel), theirs) < EXACT
    )


@pytest.mark.parametrize("rule", PATCH_RULES)
def test_larger_kernel_sees_the_same_in_larger_patches(rule):
    old, new = (5, 3), (7, 4)
    kernel, patch = draw(2, *old)
    fitted = apply_matrices(patch_matrices(old, new, rule), kernel)
    enlarged = F.interpolate(torch.from_numpy(patch)[None, None], size=new, **TORCH_RULES[rule]).numpy()
    assert abs((fitted * enlarged).sum() - (kernel * patch).sum()) < EXACT


def test_patch_kernel_of_the_same_size_is_exact():
    for rule in PATCH_RULES:
        for matrix, size in zip(patch_matrices((5, 3), (5, 3), rule), (5, 3), strict=True):
            np.testing.assert_array_equal(matrix, np.eye(size))


def timm_relative(values: np.ndarray, old: tuple[int, int], new: tuple[int, int]) -> np.ndarray:
    """timm's fit of a table (h, 2 gh - 1, 2 gw - 1), laid out as BEiT's with three more rows."""
    heads = len(values)
    table = torch.from_numpy(np.concatenate([rows(values), np.zeros((3, heads))]))
    sides = 2 * new[0] - 1, 2 * new[1] - 1
    shape = (sides[0] * sides[1] + 3, heads)
    fitted = timm.layers.resize_rel_pos_bias_table(table, new, shape, old_window_size=old)
    return fitted[:-3].T.reshape(heads, *sides).numpy()


@timm_interpolates
@each_grid
def test_relative_positions(in_double, old, new):
    values = draw(D, 2 * old[0] - 1, 2 * old[1] - 1)
    fitted = apply_matrices(relative_matrices(old, new), values)
    assert distance(fitted, timm_relative(values, old, new)) < EXACT


@timm_interpolates
@each_grid
def test_relative_positions_as_timm_computes_them(old, new):
    values = draw(D, 2 * old[0] - 1, 2 * old[1] - 1)
    theirs = timm_relative(values.astype(np.float32), old, new)
    assert distance(apply_matrices(relative_matrices(old, new), values), theirs) < SINGLE


def test_relative_positions_of_the_same_grid_are_exact():
    for matrix, size in zip(relative_matrices((5, 3), (5, 3)), (9, 5), strict=True):
        np.testing.assert_array_equal(matrix, np.eye(size))
