"""Another number of channels: what each rule promises of the outputs, and timm's arithmetic."""

import json

import numpy as np
import pytest
import torch

import parity
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.channels import RULES
from parity.porting.writing.conversion import convert
from tests.support.convert_cases import arrays_of, refused, run
from tests.support.peers import import_timm
from tests.support.tiny import TINY, error
from vit_config import ConfigError, Preprocess, write_weights
from vit_config.errors import UnstatedError

import_timm()
from timm.models import adapt_input_conv  # noqa: E402

LINEAR = {"linear_hwc": TINY.replace(patch_embed="linear_hwc", depth=1),
          "linear_chw": TINY.replace(patch_embed="linear_chw", depth=1)}  # fmt: skip
KINDS = {"conv": TINY.replace(depth=1), **LINEAR}
GREY = Preprocess(mean=(0.4,) * 3, std=(0.2,) * 3)
COLOURS = Preprocess(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.1))
GREYS = np.random.default_rng(0).standard_normal((2, 1, 21, 15))
OTHERS = np.random.default_rng(1).standard_normal((2, 3, 21, 15))
# rule, channels, an image of three, and the image of the new channels that gives the same
PROMISES = [
    ("sum", 1, GREYS.repeat(3, 1), GREYS),
    ("mean-scale", 13, GREYS.repeat(3, 1), GREYS.repeat(13, 1)),
    ("repeat", 6, OTHERS, np.concatenate([OTHERS, OTHERS], 1)),
    ("zeros", 5, OTHERS, np.concatenate([OTHERS, OTHERS[:, :2] + 7], 1)),
]


def written(path, cfg, preprocess=GREY):
    write_weights(path, cfg, {n: a.astype(np.float64) for n, a in arrays_of(cfg).items()}, preprocess)
    return path


def logits(path, images):
    with torch.no_grad():
        return parity.load(path, framework="torch").model(torch.from_numpy(images)).logits.numpy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("by", "channels", "before", "after"), PROMISES, ids=[p[0] for p in PROMISES])
def test_what_a_rule_promises(by, channels, before, after, kind, tmp_path):
    source = written(tmp_path / "a.safetensors", KINDS[kind])
    done = convert(source, to="parity", out=tmp_path / "b.safetensors", channels=channels, by=by)
    assert error(logits(tmp_path / "b.safetensors", after), logits(source, before)) <= 1e-12
    read = read_checkpoint(tmp_path / "b.safetensors")
    assert read.config.in_channels == channels == len(read.preprocess.mean)
    assert f"3 channels to {channels} by {by}" in read.hops[-1].done
    assert done.config == read.config


@pytest.mark.parametrize(("by", "channels"), [("sum", 1), ("repeat", 2), ("repeat", 13)])
def test_the_arithmetic_is_timms(by, channels):
    weight = torch.randn(30, 3, 7, 5, generator=torch.Generator().manual_seed(0))
    made = RULES[by](weight.numpy().astype(np.float64), channels)
    assert error(made, adapt_input_conv(channels, weight).numpy()) <= 1e-7


def test_preprocessing_is_extended_or_asked_for(tmp_path):
    source, out = written(tmp_path / "a.safetensors", TINY, COLOURS), tmp_path / "b.safetensors"
    convert(source, to="parity", out=out, channels=4, by="repeat")
    assert read_checkpoint(out).preprocess.mean == (0.4, 0.5, 0.6, 0.4)
    for by, channels in (("sum", 1), ("mean-scale", 4), ("zeros", 4)):
        options = {"to": "parity", "out": out, "channels": channels, "by": by, "force": True}
        with pytest.raises(
            UnstatedError, match=rf"give --preprocess FILE with mean and std of {channels}"
        ):
            convert(source, **options)
        stated = Preprocess(mean=(0.1,) * channels, std=(0.3,) * channels)
        convert(source, preprocess=stated, **options)  # as it says
        assert read_checkpoint(out).preprocess.std == (0.3,) * channels
    with pytest.raises(ConfigError, match="has 2 channels, the model 3, and --channels makes 4"):
        convert(source, preprocess=Preprocess(mean=(0, 0), std=(1, 1)), **options)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--channels", "4"), "--channels 4: by which rule? give --by repeat, sum, mean-scale, zeros"),
        (("--by", "sum"), "--by sum: how many channels? give --channels N, too"),
        (("--channels", "0", "--by", "sum"), "must be at least 1"),
        (("--channels", "4", "--by", "sum"), "makes one channel; give --by mean-scale"),
        (("--channels", "1", "--by", "repeat"), "would drop all but one; give --by sum"),
        (("--channels", "2", "--by", "zeros"), "fewer than the 3 that it has"),
    ],
)
def test_refusals(flags, said, tmp_path, capsys):
    source = written(tmp_path / "a.safetensors", KINDS["conv"])
    argv = ("convert", source, tmp_path / "out.safetensors", "--to", "parity", *flags)
    refused(capsys, tmp_path, [said], *argv)


def test_a_norm_over_channels_is_refused(tmp_path):
    cfg = LINEAR["linear_hwc"].replace(patch_input_norm=True)
    with pytest.raises(ConfigError, match="normalised over all 3 channels"):
        convert(
            written(tmp_path / "a.safetensors", cfg),
            to="parity",
            out=tmp_path / "b",
            channels=1,
            by="sum",
        )


@pytest.mark.parametrize(("to", "entry"), [("hf", "num_channels"), ("timm", "in_chans")])
def test_the_config_files_say_it(to, entry, tmp_path, capsys):
    square = TINY.replace(image_size=(15, 15), patch_size=(5, 5), norm_eps=1e-6)
    source, out = written(tmp_path / "a.safetensors", square), tmp_path / "out"
    flags = ("--to", to, "--channels", "5", "--by", "repeat", "--verify")
    status, said, _ = run(capsys, "convert", source, out, *flags)
    assert status == 0, said
    assert f'"{entry}": 5' in json.dumps(json.loads((out / "config.json").read_text()))
