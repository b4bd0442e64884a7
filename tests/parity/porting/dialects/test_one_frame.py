"""One frame of a video patch is a convolution of an image; more frames are refused by what they are."""

import pytest
import torch

from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import images_for, prove, redraw, twin_logits
from tests.support.hf_models import CLASSES, MLP, SIZES, build, reload, save, transformers
from tests.support.tiny import error
from vit_config import ConfigError
from vit_config.errors import OtherModelError

FRAME = {**SIZES, **MLP, "num_frames": 1, "tubelet_size": 1}
KINDS = {
    "classifier": ("VideoMAEForVideoClassification", {**CLASSES, "layer_norm_eps": 1e-5}),
    "no biases": (
        "VideoMAEForVideoClassification",
        {**CLASSES, "layer_norm_eps": 1e-5, "qv_bias": False},
    ),
    "tokens": ("VideoMAEModel", {}),
    "normed tokens": ("VideoMAEModel", {"use_mean_pooling": False}),
}


def logits(model):
    """Its logits, or the mean of its tokens; its table of positions is of float32 in its own code."""
    positions = getattr(model, "videomae", model).embeddings
    table = transformers.models.videomae.modeling_videomae.get_sinusoid_encoding_table
    tensor, torch.FloatTensor = torch.FloatTensor, torch.DoubleTensor
    try:
        positions.position_embeddings = table(positions.num_patches, 30)
    finally:
        torch.FloatTensor = tensor

    def run(images):
        with torch.no_grad():
            out = model(pixel_values=torch.from_numpy(images)[:, None])
        return (out.logits if "logits" in out else out.last_hidden_state.mean(1)).numpy()

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_videomae(kind, tmp_path):
    name, entries = KINDS[kind]
    model = build(name, "VideoMAEConfig", **FRAME, **entries)
    saved = save(model, tmp_path / "saved")
    prove(
        saved,
        logits(model),
        to="hf-videomae-frame",
        out=tmp_path / "back",
        reload=reload(logits, auto=name),
    )


@pytest.mark.parametrize(("frames", "tube"), [(2, 1), (2, 2)])
def test_videos_are_refused(frames, tube, tmp_path):
    entries = {**FRAME, **CLASSES, "num_frames": frames, "tubelet_size": tube}
    model = build("VideoMAEForVideoClassification", "VideoMAEConfig", **entries)
    saved = save(model, tmp_path / "saved")
    kind = ConfigError if tube == 1 else OtherModelError
    with pytest.raises(kind, match="model of videos"):
        read_checkpoint(saved)


class Frames(torch.nn.Module):
    """Prithvi's structure: timm's blocks behind a convolution of three dimensions."""

    def __init__(self, frames):
        super().__init__()
        from tests.support.peers import import_timm

        timm = import_timm()
        options = {
            "img_size": (21, 15),
            "patch_size": (7, 5),
            "embed_dim": 30,
            "depth": 2,
            "num_heads": 5,
        }
        self.body = timm.models.vision_transformer.VisionTransformer(
            **options, in_chans=6, num_classes=0, global_pool="token", mlp_ratio=2
        )
        self.frames = frames
        self.body.patch_embed.proj = torch.nn.Conv3d(6, 30, (1, 7, 5), (1, 7, 5))
        self.body.pos_embed = torch.nn.Parameter(torch.zeros(1, 1 + 9 * frames, 30))

    def forward(self, images):
        """Compute the class token of images (B, 6, frames * H, W), each frame below the one before."""
        video = images.unflatten(2, (self.frames, 21))
        x = self.body.patch_embed.proj(video).flatten(2).transpose(1, 2)
        return self.body.norm(self.body.blocks(self.body._pos_embed(x)))[:, 0]


def saved_frames(folder, frames, *, decoder=True):
    model = redraw(Frames(frames))
    more = {"mask_token": torch.zeros(1, 1, 4), "decoder_embed.weight": torch.zeros(4, 30)}
    torch.save({**model.body.state_dict(), **(more if decoder else {})}, folder / "prithvi.pt")
    return model


STATED = {"num_heads": 5, "image_size": (21, 15), "norm_eps": 1e-6, "act": "gelu", "pool": "class",
          "block": "pre_norm"}  # fmt: skip


@pytest.mark.parametrize(("frames", "dialect"), [(1, "mae"), (2, "timm-vit")])
def test_prithvi(frames, dialect, tmp_path):
    model = saved_frames(tmp_path, frames, decoder=dialect == "mae")
    given = {**STATED, "image_size": (frames * 21, 15)}
    source = read_checkpoint(tmp_path / "prithvi.pt", dialect=dialect, given=given)
    assert "patch_embed.proj.weight (30, 6, 1, 7, 5), of one frame" in " ".join(source.notes)
    convert(source, to="parity", out=tmp_path / "out.safetensors")
    images = images_for(source.config)
    with torch.no_grad():
        expected = model(torch.from_numpy(images)).numpy()
    for logits in twin_logits(tmp_path / "out.safetensors", images).values():
        assert error(logits, expected) <= 1e-12


def test_prithvi_of_two_times_is_refused(tmp_path):
    saved_frames(tmp_path, 2)
    with pytest.raises(OtherModelError, match="give --dialect mae"):
        read_checkpoint(tmp_path / "prithvi.pt")
    said = "has 19 rows and an image 9 patches .* it sees 2 frames at a time, .* of videos .*=42x15"
    with pytest.raises(OtherModelError, match=said):
        read_checkpoint(tmp_path / "prithvi.pt", dialect="mae", given=STATED)
