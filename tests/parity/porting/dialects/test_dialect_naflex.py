"""SigLIP 2 and timm's NaFlexViT on images of any size: pixels, outputs, gradients, conversion."""

import json

import jax
import numpy as np
import pytest
import torch
from PIL import Image

from evidence.timm_sweep import peer
from parity.cli import main
from parity.porting.dialects import find_dialects
from parity.porting.dialects.table import bind_theirs
from parity.porting.dialects.transfer import read
from parity.porting.formats import Stored
from parity.porting.models.files import load
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.parity.porting.dialects.test_dialect_siglip import PATCHES
from tests.support.dialect_proof import redraw
from tests.support.hf_models import build, save, transformers
from tests.support.tiny import error
from vit_config import Preprocess
from vit_config.errors import UnstatedError
from vit_config.images.patches import Patches, collate
from vit_config.images.pixels import prepare

SHAPES = [(15, 20), (5, 5), (35, 10), (15, 15)]
PIXELS = [(37, 91), (60, 20), (3, 2), (1, 40), (16, 16), (300, 299)]


def batch_of(shapes=SHAPES):
    stream = np.random.default_rng(0)
    return collate([stream.standard_normal((*each, 3)) for each in shapes], (5, 5), 16)


def tensors(batch):
    return Patches(*(torch.from_numpy(each) for each in batch))


def of_transformers(model, batch):
    """The pooled output; float64 where the library rounds its table to float32 before it fits it."""
    grids = batch.coordinates.max(axis=1) + 1
    given = tensors(batch)
    with peer.float64():
        return model(
            pixel_values=given.pixels,
            pixel_attention_mask=given.valid.long(),
            spatial_shapes=torch.from_numpy(grids),
        ).pooler_output


def of_timm(model, batch):
    given = tensors(batch)
    with peer.float64():
        return model(
            {
                "patches": given.pixels,
                "patch_coord": given.coordinates.long(),
                "patch_valid": given.valid,
            }
        )


@pytest.fixture(scope="module")
def siglip2(tmp_path_factory):
    model = build("Siglip2VisionModel", "Siglip2VisionConfig", **PATCHES)
    saved = save(model, tmp_path_factory.mktemp("siglip2") / "saved")
    processor = {"image_processor_type": "Siglip2ImageProcessor", "patch_size": 5, "max_num_patches": 12}
    (saved / "preprocessor_config.json").write_text(json.dumps(processor))
    return model, saved


def test_siglip2_and_its_gradients(siglip2):
    model, saved = siglip2
    batch = batch_of()
    expected = of_transformers(model, batch)
    pull = np.random.default_rng(1).standard_normal(tuple(expected.shape))
    model.zero_grad()
    (expected * torch.from_numpy(pull)).sum().backward()
    (dialect,) = find_dialects("hf-siglip2-vision")
    grads = dialect.within_body({name: each.grad.numpy() for name, each in model.named_parameters()})
    rows, left = bind_theirs(dialect.tables[0], {name: each.shape for name, each in grads.items()})
    assert not left
    theirs = read(rows, {name: Stored.of(each) for name, each in grads.items()})
    twin = load(saved, framework="torch").model
    ours = twin.logits(tensors(batch))
    (ours * torch.from_numpy(pull)).sum().backward()
    assert error(ours.detach(), expected.detach()) <= 1e-12
    for name, parameter in twin.named_parameters():
        assert error(parameter.grad, theirs[name].load()) <= 1e-12, name
    with jax.enable_x64(True):
        twin = load(saved, framework="jax").model
        logits = twin.logits(Patches(*map(jax.numpy.asarray, batch)))
        assert error(logits, expected.detach()) <= 1e-12


def test_siglip2_into_timm_and_back(siglip2, tmp_path):
    model, saved = siglip2
    convert(saved, to="timm-naflex", out=tmp_path / "timm")
    timm = peer.create_float64(f"local-dir:{tmp_path / 'timm'}")
    state = {name: torch.from_numpy(each.load()) for name, each in tensors_of(tmp_path / "timm").items()}
    timm.load_state_dict(state, strict=True)
    expected = of_transformers(model, batch_of()).detach()
    assert error(of_timm(timm, batch_of()).detach(), expected) <= 1e-12
    done = convert(tmp_path / "timm", to="hf", out=tmp_path / "back")
    assert done.dialect == "hf-siglip2-vision"
    back = tensors_of(tmp_path / "back")
    for name, each in tensors_of(saved).items():
        np.testing.assert_array_equal(back[name].load(), each.load())


def tensors_of(folder):
    return read_checkpoint(folder).tensors


def test_timm_into_transformers(tmp_path):
    """timm's own table of another grid than its image size."""
    small = {"embed_dim": 30, "depth": 2, "num_heads": 5, "patch_size": 5, "pos_embed_grid_size": (3, 3)}
    model = redraw(peer.create_float64("naflexvit_base_patch16_siglip", **small))
    peer.import_timm().models._hub.save_for_hf(model, tmp_path / "timm", safe_serialization=True)
    done = convert(tmp_path / "timm", to="hf-siglip2-vision", out=tmp_path / "hf")
    assert any("a model for 15x15, and for any other size" in note for note in done.notes)
    again = transformers.AutoModel.from_pretrained(tmp_path / "hf", dtype=torch.float64).eval()
    expected = of_timm(model, batch_of()).detach()
    assert error(of_transformers(again, batch_of()).detach(), expected) <= 1e-12


def test_how_a_table_is_fitted_is_asked_for(tmp_path):
    model = peer.create_float64("naflexvit_base_patch16_par_gap", embed_dim=30, depth=1, num_heads=5)
    torch.save(model.state_dict(), tmp_path / "bare.pth")
    with pytest.raises(UnstatedError, match="pos_embed_resize, pos_embed_aspect;") as asked:
        read_checkpoint(tmp_path / "bare.pth")
    assert "pos_embed_aspect: stretch, keep" in str(asked.value)


def test_pixels_are_those_of_the_librarys_processor(siglip2, tmp_path):
    _, saved = siglip2
    source = read_checkpoint(saved)
    assert source.preprocess.max_patches == 12
    convert(source, to="hf-siglip2-vision", out=tmp_path / "back")
    entries = json.loads((tmp_path / "back" / "preprocessor_config.json").read_text())
    assert (entries["patch_size"], entries["max_num_patches"]) == (5, 12)
    from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

    processor = Siglip2ImageProcessorPil(**{k: v for k, v in entries.items() if not k.endswith("_type")})
    images = [np.random.default_rng(0).integers(0, 256, (*each, 3), np.uint8) for each in PIXELS]
    theirs = processor(images=[Image.fromarray(each) for each in images], return_tensors="np")
    ours = load(saved, framework="torch").prepare(images)
    np.testing.assert_array_equal(ours.valid, theirs["pixel_attention_mask"].astype(bool))
    np.testing.assert_array_equal(ours.coordinates.max(axis=1) + 1, theirs["spatial_shapes"])
    assert np.abs(ours.pixels - theirs["pixel_values"]).max() <= 1e-6


def test_pixels_are_those_of_timms_transform():
    from timm.data.naflex_transforms import ResizeToSequence

    stated = Preprocess(max_patches=12)
    for shape in PIXELS:
        image = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
        theirs = ResizeToSequence((5, 5), 12, interpolation="bicubic")(Image.fromarray(image))
        np.testing.assert_array_equal(prepare(image, (15, 15), stated, (5, 5)), np.asarray(theirs))


def test_images_of_any_size_are_predicted(siglip2, tmp_path):
    model, saved = siglip2
    images = [np.random.default_rng(0).integers(0, 256, (*each, 3), np.uint8) for each in PIXELS]
    with jax.enable_x64(True):
        logits = {name: load(saved, framework=name).logits(images) for name in ("jax", "torch")}
    batch = load(saved, framework="torch").prepare(images)
    expected = of_transformers(model, batch._replace(pixels=batch.pixels.astype(np.float64)))
    assert error(logits["torch"], expected.detach()) <= 1e-12
    assert error(logits["jax"], logits["torch"]) <= 1e-12
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{number}.png")
    features = ["--framework", "torch", "--features", str(tmp_path / "f.npy")]
    assert main(["predict", str(saved), str(folder), *features]) == 0
    assert error(np.load(tmp_path / "f.npy"), logits["torch"]) <= 1e-6
