"""Every change of one field to every variant: refused with a sentence, or both twins compute with it."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx

import vit_jax
import vit_torch
from tests.support.flips import FLIPS
from tests.support.tiny import TINY, VARIANTS, variant
from vit_config import ConfigError, InputError, ViTConfig


def _values():
    """Each field with each value that it has in a variant, that a check of it uses, and by default."""
    fields = {
        field: [ViTConfig.model_fields[field].default, flip.value] for field, flip in FLIPS.items()
    }
    for changes in (*VARIANTS.values(), *(flip.companions for flip in FLIPS.values())):
        for field, value in changes.items():
            fields[field].append(value)
    return [(field, value) for field in fields for value in dict.fromkeys(fields[field])]


VALUES = _values()


def _accepted(cfg):
    """Yield the changes of a schema that are valid."""
    for field, value in VALUES:
        try:
            yield field, value, cfg.replace(**{field: value})
        except ConfigError as error:
            assert len(str(error)) > 20, (field, value)


def _of_torch(cfg):
    torch.manual_seed(0)
    with torch.no_grad():
        model = vit_torch.ViT(cfg).eval()
        logits = model(torch.randn(2, cfg.in_channels, *cfg.image_size)).logits
    assert torch.isfinite(logits).all()
    return tuple(logits.shape)


def _of_jax(cfg):
    graph, state = nnx.split(nnx.eval_shape(lambda: vit_jax.ViT(cfg, rngs=nnx.Rngs(0))))

    def logits(state, images):
        model = nnx.merge(graph, state)
        model.eval()
        return model(images).logits

    images = jax.ShapeDtypeStruct((2, *cfg.image_size, cfg.in_channels), jnp.float32)
    return jax.eval_shape(logits, state, images).shape


def test_there_are_thousands_of_changes():
    assert len(VALUES) > 120
    assert sum(1 for _ in _accepted(TINY)) > 60


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_accepted_runs(name):
    """In PyTorch each of them; in JAX, whose tracing takes ten times as long, every twelfth."""
    turn = [*VARIANTS].index(name)
    for number, (field, value, cfg) in enumerate(_accepted(variant(name))):
        try:
            shape = _of_torch(cfg)
            assert (number + turn) % 12 or _of_jax(cfg) == shape
        except InputError:  # an image beyond a position table
            assert cfg.dynamic_image_size
        except Exception as error:
            raise AssertionError(f"{name} with {field} = {value!r}") from error


def test_the_first_rows_of_a_small_table_are_not_enough():
    with pytest.raises(ConfigError, match=r"has too few for the 3x3 patches of the image; enlarge it"):
        TINY.replace(pos_embed_resize="leading_rows", pos_embed_grid=(2, 4))
    assert TINY.replace(pos_embed_resize="leading_rows", pos_embed_grid=(9, 1)).num_patches == 9
    with pytest.raises(ConfigError, match=r"has too few"):
        TINY.replace(pos_embed="factorized", pos_embed_resize="leading_rows", pos_embed_grid=(9, 1))
    small = TINY.replace(pos_embed_resize="leading_rows", pos_embed_grid=(2, 4), dynamic_image_size=True)
    with pytest.raises(InputError, match="the position table of a grid 2x4 has 8"):
        _of_torch(small)
    assert _of_torch(small.replace(image_size=(14, 15))) == (2, 11)
