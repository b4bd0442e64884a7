"""Small models of timm's, saved as timm does."""

import json

import torch
from safetensors.numpy import load_file

from evidence.timm_sweep import peer
from evidence.timm_sweep.shrink import shrunk_arguments
from tests.support.dialect_proof import redraw
from vit_config import (
    PRESETS,
)

timm = peer.import_timm()
MODULES = peer.architectures()


def small(name, **changes):
    """A small model of an architecture, with every switch as it is."""
    model = peer.create_float64(name, **{**shrunk_arguments(PRESETS[name], MODULES[name]), **changes})
    return redraw(model)


def saved(folder, model):
    """The folder that timm itself writes of a model."""
    timm.models._hub.save_for_hf(model, folder, safe_serialization=True)
    return folder


def logits_of(model):
    def logits(images):
        with torch.no_grad(), peer.float64():
            return model(torch.from_numpy(images)).numpy()

    return logits


def reload(folder):
    """timm's model of a folder, loaded strictly, in float64."""
    model = peer.create_float64(f"local-dir:{folder}")
    state = {
        name: torch.from_numpy(each) for name, each in load_file(folder / "model.safetensors").items()
    }
    model.load_state_dict(state, strict=True)
    return logits_of(model)


def write_json(folder, config):
    (folder / "config.json").write_text(json.dumps(config))


def bare(folder, model):
    """A file with nothing but tensors."""
    folder.mkdir()
    path = folder / "model.pth"
    torch.save(model.state_dict(), path)
    return path
