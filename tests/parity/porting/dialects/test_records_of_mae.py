"""Files of the scripts that fine-tune MAE: their records name the model, its classes and its pool."""

import argparse

import pytest
import torch

from parity.porting.reading.checkpoint import read_checkpoint
from vit_config import preset
from vit_config.parameters import parameters

WIDTH = {"RETFound_mae": "vit_large_patch16_224", "vit_base_patch16": "vit_base_patch16_224"}


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("name", WIDTH)
def test_the_model_is_what_the_records_call_it(name, mean, tmp_path):
    changes = {"pool": "mean", "final_norm": "post_pool"} if mean else {}
    cfg = preset(WIDTH[name]).replace(num_classes=5, image_size=(48, 48), **changes)
    one = torch.zeros(1)  # expanded: a file without the values
    state = {n: one.expand(each.shape) for n, each in parameters(cfg).items()}
    args = argparse.Namespace(model=name, nb_classes=5, input_size=48, global_pool=mean, drop_path=0.2)
    torch.save({"model": state, "args": args, "epoch": 3}, tmp_path / "checkpoint-best.pth")
    checkpoint = read_checkpoint(tmp_path / "checkpoint-best.pth")
    assert checkpoint.config.replace(stochastic_depth=0.0) == cfg
    assert checkpoint.origins["num_heads"] == "its training's records"
