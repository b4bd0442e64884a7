"""`parity export --keep-float32`: what overflows is refused, and what must be is kept in float32."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import parity
from parity.cli import main
from parity.exporting.export import DifferentError
from parity.exporting.narrow.aten import TorchGraph
from parity.exporting.narrow.int8 import _of_batch
from parity.exporting.narrow.search import MARGIN, Search
from tests.support.convert_cases import arrays_of
from tests.support.replayed import replayed_here  # noqa: F401  # a fixture
from tests.support.tiny import TINY
from vit_config import ConfigError, Preprocess, write_weights

CFG = TINY.replace(depth=2)
KEPT = [
    "blocks.0.mlp.fc2.matmul", "blocks.0.mlp.fc2.add",
    "blocks.0.add.1", "blocks.1.add.0", "blocks.1.add.1",
]  # fmt: skip
"""What overflows in the file below: the residual stream, from where it is large."""
pytestmark = pytest.mark.usefixtures("replayed_here")


def written(path, change=lambda arrays: None, preprocess=None):
    """Write drawn weights, changed."""
    arrays = {name: np.array(each) for name, each in arrays_of(CFG).items()}
    change(arrays)
    write_weights(path, CFG, arrays, preprocess or Preprocess(crop_fraction=0.875))
    return path


def overflow(arrays):
    arrays["blocks.0.mlp.fc2.weight"] *= 1e5 / np.abs(arrays["blocks.0.mlp.fc2.weight"]).max() / 2


@pytest.fixture(scope="module")
def huge(tmp_path_factory):
    """A file whose residual stream is beyond the largest float16, and all its weights are not."""
    return written(tmp_path_factory.mktemp("weights") / "huge.safetensors", overflow)


EXHAUSTIVE = pytest.param("torch-export", marks=pytest.mark.exhaustive)


@pytest.mark.parametrize("to", ["onnx", "stablehlo", EXHAUSTIVE])
def test_a_program_that_overflows_is_refused_with_its_line(huge, tmp_path, capsys, to):
    """ONNX Runtime's CPU computes float16 in float32, and says nothing."""
    out = tmp_path / "out"
    words = ["export", str(huge), str(out), "--to", to, "--dtype", "float16"]
    assert main([*words, "--input", "float32"]) == 1
    said = capsys.readouterr().err
    assert f"{out}: not written, for " in said
    assert " overflows in float16: it reaches " in said
    assert " at mlp.py:" in said
    assert "--keep-float32 auto --bound 1e-2" in said
    assert not [*tmp_path.iterdir()]


def test_what_overflows_is_kept_in_an_onnx_file(huge, tmp_path, capsys):
    out = tmp_path / "half.onnx"
    words = ["export", str(huge), str(out), "--to", "onnx", "--dtype", "float16", "--input", "float32"]
    assert main([*words, "--keep-float32", "auto", "--bound", "1e-2"]) == 0
    said = capsys.readouterr().out
    assert "keeps 5 of " in said
    assert "mlp.py:56  x = self.fc2(" in said
    assert "overflow: " in said
    assert "inf without it; +" in said
    kept = json.loads(out.with_name("half.onnx.json").read_text())["kept"]
    assert [each["name"] for each in kept["operations"]] == KEPT
    assert kept["error"] < 1e-2
    assert all(each["without"] == "inf" for each in kept["operations"])
    names = ",".join([*KEPT[:3], *KEPT[4:]])  # none can be left out
    assert main([*words, "--force", "--keep-float32", names, "--bound", "1e-2"]) == 1
    assert "would be inf from float64: more than --bound allows" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["stablehlo", EXHAUSTIVE])
def test_what_overflows_is_kept_in_other_programs(huge, tmp_path, to):
    """Pictures of any size go in: the model in it is searched."""
    out = tmp_path / "half"
    done = parity.export(huge, out, to=to, dtype="float16", keep_float32=["auto"], bound=1e-2)
    assert done.kept is not None
    assert {each.kind for each in done.kept.operations} == {"overflow"}
    assert max(max(each.error, each.own or 0.0) for each in done.compared) < 5e-3
    assert not np.isfinite(done.compared[0].twins["torch"])


@pytest.mark.exhaustive
def test_bfloat16_of_onnx_is_proven_without_onnx_runtime(huge, tmp_path):
    done = parity.export(huge, tmp_path / "b.onnx", to="onnx", dtype="bfloat16", input="float32")
    assert done.kept is None
    assert all(2e-4 < (each.own or 0.0) < each.most for each in done.compared)
    bound = max(each.own or 0.0 for each in done.compared) / 2
    options = {"to": "onnx", "dtype": "bfloat16", "input": "float32"}
    done = parity.export(huge, tmp_path / "c", **options, keep_float32=["auto"], bound=bound)
    kept = done.kept
    assert kept is not None
    assert kept.error <= MARGIN * bound < min(each.without for each in kept.operations)
    assert {each.kind for each in kept.operations} <= {"accumulation", "cancellation"}


def test_logits_of_attention_overflow_where_they_are_written_out(tmp_path):
    """PyTorch's attention keeps them inside; ONNX and the JAX twin write them, before any maximum is
    subtracted."""

    def sharp(arrays):
        width = CFG.attention_width
        arrays["blocks.1.attn.qkv.weight"][..., : 2 * width] *= 4e2

    source = written(tmp_path / "sharp.safetensors", sharp)
    with pytest.raises(
        DifferentError, match=r"blocks\.1\.attn\.matmul\.0 at attention\.py:\d+ overflows"
    ):
        parity.export(source, tmp_path / "o", to="onnx", dtype="float16", input="float32")
    with pytest.raises(DifferentError, match=r"dot_general.* at kernels\.py:\d+ overflows"):
        parity.export(source, tmp_path / "o", to="stablehlo", dtype="float16", input="float32")


@pytest.mark.exhaustive
def test_only_a_users_picture_overflows(tmp_path, capsys):
    """White pictures make it, those that are drawn do not."""

    def bright(arrays):
        kernel = arrays["patch_embed.proj.weight"]
        kernel[:] = 0.01 * np.abs(kernel) / np.abs(kernel).max()
        kernel[0] = 8.0

    stated = Preprocess(mean=(0.5, 0.5, 0.5), std=(0.004, 0.004, 0.004))
    source = written(tmp_path / "bright.safetensors", bright, stated)
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (40, 30), (255, 255, 255)).save(tmp_path / "pictures" / "white.png")
    words = ["export", str(source), str(tmp_path / "o"), "--to", "torch-export", "--dtype", "float16"]
    assert main(words) == 0
    assert main([*words, "--force", "--images", str(tmp_path / "pictures")]) == 1
    assert "overflows in float16" in capsys.readouterr().err


class _Toy(torch.nn.Module):
    def forward(self, x):
        x = x.half()
        squares = x.square().sum(-1, keepdim=True)  # beyond 65504, as those of a norm in float16
        length = (squares + 1e-12).sqrt()
        small = x * 1e-7  # among the subnormal numbers
        return {
            "a": (x / length).float(),
            "b": (small * 1e7).float(),
            "c": torch.nn.functional.gelu(x).float(),
        }


def graph_of(module, images):
    program = torch.export.export(module, (torch.from_numpy(images),))
    return TorchGraph(program, "float16", images)


def test_the_arithmetic_is_that_of_the_type():
    """Each result is what PyTorch's own float16 gives, and each reason is the right one."""
    images = np.random.default_rng(0).standard_normal((2, 48)).astype(np.float16).astype(np.float32)
    images *= np.array([[100.0], [1.0]], np.float32)
    runs = Search(graph_of(_Toy(), images))
    ours = runs.graph.run(())
    native = _Toy()(torch.from_numpy(images))
    for mine, theirs in zip(ours, native.values(), strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=2e-3)
    assert not ours[0][0].any()
    assert ours[0][1].any()
    kept = runs.kept(runs.find(2e-3, runs))
    kinds = {each.name.rpartition(".")[2]: each.kind for each in kept.operations}
    assert kinds["sum"] == "overflow"
    assert kept.error <= 2e-3
    assert "underflow" in kinds.values()


@pytest.mark.exhaustive
def test_eight_bits_lose_most_in_some_products(tmp_path, capsys):
    source = written(tmp_path / "own.safetensors")
    out = tmp_path / "eight.onnx"
    words = ["export", str(source), str(out), "--to", "onnx", "--dtype", "int8", "--input", "float32"]
    assert main(words) == 0
    error = max(
        each["error"] for each in json.loads(out.with_name("eight.onnx.json").read_text())["compared"]
    )
    bound = error / 2
    capsys.readouterr()
    assert main([*words, "--force", "--keep-float32", "auto", "--bound", str(bound)]) == 0
    said, about = capsys.readouterr().out, json.loads(out.with_name("eight.onnx.json").read_text())
    assert "alone in 8 bits, the worst of 10: " in said
    kept = about["kept"]
    assert 0 < len(kept["operations"]) < 10 == len(kept["losses"])
    assert max(each["error"] for each in about["compared"]) <= bound
    assert bound * MARGIN < min(each["without"] for each in kept["operations"])
    assert abs(kept["low"] / error - 1) < 0.01  # what is simulated is what ONNX Runtime does


def test_what_cannot_be_kept_is_refused(huge, tmp_path):
    def refused(message, **given):
        with pytest.raises(ConfigError, match=message):
            parity.export(huge, tmp_path / "o", **{"to": "onnx", "input": "float32", **given})

    refused("all of a float32 program is in float32", keep_float32=["auto"], bound=0.01)
    refused("go together", dtype="float16", keep_float32=["auto"])
    refused("go together", dtype="float16", bound=0.01)
    refused("must be positive", dtype="float16", keep_float32=["auto"], bound=0.0)
    refused("leaves no names", dtype="float16", keep_float32=["auto", "head"], bound=0.01)
    refused(
        "no operation that rounds is called so", dtype="float16", keep_float32=["block.7"], bound=0.01
    )
    refused("is of images", dtype="float16", images=["a.png"], input="tokens") if False else None


def test_a_batch_is_rounded_to_256_steps():
    x = torch.arange(-100.0, 156.0)
    assert torch.equal(_of_batch(x), x)
