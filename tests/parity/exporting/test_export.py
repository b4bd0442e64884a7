"""`parity export`: programs for elsewhere are the twins, and what is not is not written."""

import json
import re
from dataclasses import replace
from pathlib import Path
from socket import gethostname

import numpy as np
import pytest

import evidence.faults  # noqa: F401 - has more faults
import parity
from parity.cli import main
from parity.exporting import export as exporting
from parity.exporting import pixels, programs
from parity.exporting.compare import prepare_pictures
from parity.exporting.formats import FORMATS
from parity.faults import inject
from tests.support.convert_cases import arrays_of
from tests.support.peers import import_timm
from tests.support.tiny import TINY
from vit_config import (
    ConfigError,
    InputError,
    MissingFileError,
    Preprocess,
    WeightsError,
    preset,
    write_weights,
)
from vit_config.other_python import FOLDER

CFG = TINY.replace(depth=1)
NAMES = tuple(f"class {number}" for number in range(11))
TOLD = Preprocess(crop_fraction=0.875, class_names=NAMES, license="mit")
PICTURES = np.random.default_rng(3).integers(0, 256, (4, 19, 33, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "own.safetensors"
    write_weights(path, CFG, arrays_of(CFG), TOLD)
    return path


def tells_of_nobody(program):
    """No folder of this machine is in a program, but the lines that it was traced from are, and in its
    description nothing of either."""
    content = program.read_bytes()
    folders = [
        FOLDER,
        str(Path.home()),
        np.__file__.partition("numpy")[0],
        str(program.parent),
        gethostname(),
    ]
    for each in (content, program.with_name(f"{program.name}.json").read_bytes()):
        assert not [folder for folder in folders if len(folder) > 3 and folder.encode() in each]
    assert re.search(rb"vit_(jax|torch)/block\.py", content)


def of_twin(path):
    loaded = parity.load(path, framework="torch")
    return loaded.logits(list(PICTURES))


def test_a_picture_goes_through_stablehlo(weights, tmp_path, capsys):
    from jax import export

    out = tmp_path / "own.stablehlo"
    out.write_text("an older one")
    out.with_name("own.stablehlo.json").write_text('{"format": "stablehlo"}')
    words = ["export", str(weights), str(out), "--to", "stablehlo", "--platforms", "cpu,tpu"]
    assert main(words) == 2
    assert f"{out}: already exists; give another path, or --force" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0
    assert "logits (B, 11)" in capsys.readouterr().out
    assert sorted(each.name for each in tmp_path.iterdir()) == ["own.stablehlo", "own.stablehlo.json"]
    tells_of_nobody(out)
    program = export.deserialize(bytearray(out.read_bytes()))
    assert program.platforms == ("cpu", "tpu")
    assert [str(axis) for axis in program.in_avals[0].shape] == ["batch", "height", "width", "3"]
    actual = program.call(PICTURES)
    assert set(actual) == {"logits", "pooled", "tokens"}
    np.testing.assert_allclose(actual["logits"], of_twin(weights), rtol=1e-4, atol=1e-5)
    about = json.loads((tmp_path / "own.stablehlo.json").read_text())
    assert (about["class_names"], about["license"]) == (list(NAMES), "mit")
    assert about["input"]["shape"] == ["B", "h", "w", 3]
    assert about["outputs"]["tokens"]["shape"] == ["B", 10, 30]
    assert about["provenance"][-1]["source"] == "own.safetensors"
    assert about["schema"]["hidden_size"] == 30
    assert [each["passed"] for each in about["compared"]] == [True] * 3
    assert set(about["compared"][0]["twins"]) == {"jax", "torch"}


def test_prepared_images_go_through_onnx(weights, tmp_path):
    import onnxruntime

    out = tmp_path / "own.onnx"
    model = parity.load(weights, framework="jax").model  # the JAX twin goes by the other
    done = parity.export(model, out, to="onnx", input="float32")
    tells_of_nobody(out)
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["batch", 3, 21, 15]
    assert session.get_outputs()[0].shape == ["batch", 11]
    about = json.loads(session.get_modelmeta().custom_metadata_map["vit.about"])
    assert (about["class_names"], about["preprocess"]["crop_fraction"]) == (list(NAMES), 0.875)
    images = prepare_pictures(
        exporting.subject_of(model, input="float32", dtype=None), PICTURES
    ).transpose(0, 3, 1, 2)
    output = np.asarray(session.run(["logits"], {"images": images})[0])
    np.testing.assert_allclose(output, of_twin(weights), rtol=1e-4, atol=1e-5)
    assert max(each.error for each in done.compared) < 2e-6
    assert main(["diff", str(weights), str(out)]) == 0  # each node, in float64


def test_an_archive_is_the_checkpoint_operation_by_operation(weights, tmp_path):
    import torch

    out = tmp_path / "own.pt2"
    parity.export(weights, out, to="torch-export", input="float32")
    tells_of_nobody(out)
    assert main(["diff", str(weights), str(out)]) == 0
    model, images = parity.load(weights, framework="torch").model, torch.randn(2, 3, 21, 15)
    assert parity.diff((model, images), (str(out), images)).verdict == "EQUAL"
    assert "concatenate" not in str(torch.export.load(out).graph)  # which Core ML does not know


def test_size_number_and_operators_are_the_callers(weights, tmp_path, capsys):
    """The checkpoint at that size is the file operation by operation; the file's number decides."""
    import onnx

    big, out = tmp_path / "big.safetensors", tmp_path / "own.onnx"
    argv = [
        "--to",
        "onnx",
        "--input",
        "float32",
        "--image-size",
        "42x15",
        "--batch",
        "3",
        "--opset",
        "21",
    ]
    assert main(["export", str(weights), str(out), *argv]) == 0
    assert "images (3, 3, 42, 15) float32" in capsys.readouterr().out
    parity.convert(weights, to="parity", out=big, image_size=(42, 15))
    assert main(["diff", str(big), str(out)]) == 0
    assert main(["diff", str(weights), str(out)]) == 2
    assert "images [3, 3, 21, 15] in A, images [3, 3, 42, 15] in B" in capsys.readouterr().err
    graph = onnx.load(out)
    assert [each.version for each in graph.opset_import if not each.domain] == [21]
    about = json.loads((tmp_path / "own.onnx.json").read_text())
    assert about["outputs"]["tokens"]["shape"] == [3, 19, 30]
    assert about["provenance"][-1]["done"][0].startswith("image size 21x15 to 42x15, positions fitted")


@pytest.mark.parametrize(
    ("to", "flags", "said"),
    [
        ("onnx", {"opset": 9}, r"opset = 9 .*expected 18 to \d\d"),
        ("torch-export", {"opset": 20}, "opset .* is of ONNX's operators"),
        ("onnx", {"platforms": ["cuda"]}, "platforms .* is of StableHLO; onnx runs where"),
        ("onnx", {"batch": 0}, "batch = 0 .*at least 1"),
        ("onnx", {"image_size": (20, 15)}, "not divisible by patch_size"),
    ],
)
def test_what_no_program_can_be_is_refused(weights, tmp_path, to, flags, said):
    with pytest.raises(ConfigError, match=said):
        parity.export(weights, tmp_path / "out", to=to, input="float32", **flags)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("to", ["tflite", "TensorRT"])
def test_programs_of_other_tools_begin_with_an_export(weights, tmp_path, capsys, to):
    assert main(["export", str(weights), str(tmp_path / "out"), "--to", to]) == 2
    said = capsys.readouterr().err
    assert "docs/serving.md" in said
    first = said.split("`")[1].replace("CKPT", str(weights)).replace("vit.", f"{tmp_path}/vit.")
    assert main(first.split()[1:]) == 0


def test_another_module_is_no_model_of_a_known_dialect(tmp_path):
    import torch

    with pytest.raises(WeightsError, match="Linear: no Vision Transformer of a known dialect"):
        parity.export(torch.nn.Linear(2, 2), tmp_path / "x.onnx", to="onnx")


@pytest.mark.parametrize("pixel_type", ["uint16", pytest.param("float32", marks=pytest.mark.exhaustive)])
def test_pixels_of_more_than_eight_bits_are_left_to_the_caller(tmp_path, pixel_type):
    cfg = CFG.replace(in_channels=5)
    told = Preprocess(mean=(0.5,) * 5, std=(0.25,) * 5, pixel_type=pixel_type)
    write_weights(tmp_path / "bands.safetensors", cfg, arrays_of(cfg), told)
    with pytest.raises(InputError, match="--input float32"):
        parity.export(tmp_path / "bands.safetensors", tmp_path / "bands.pt2", to="torch-export")
    done = parity.export(
        tmp_path / "bands.safetensors", tmp_path / "bands.pt2", to="torch-export", input="float32"
    )
    assert done.path.is_file()


def test_what_cannot_be_followed_is_one_line(weights, tmp_path, capsys):
    program, archive = tmp_path / "own.stablehlo", tmp_path / "bad.pt2"
    assert main(["diff", str(weights), str(program)]) == 2
    assert capsys.readouterr().err == f"parity diff: {program}: no such file\n"
    for path in (program, archive):
        path.write_bytes(b"any")
    assert main(["diff", str(weights), str(program)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"parity diff: {program}: operations of StableHLO are not followed; compare")
    assert len(said.splitlines()) == 1
    assert main(["diff", str(weights), str(archive)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"parity diff: {archive}: damaged or truncated archive of torch.export")
    assert len(said.splitlines()) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("to", ["onnx", "torch-export", "stablehlo"])
def test_every_format_takes_pictures(weights, tmp_path, to, dtype):
    out = tmp_path / "own"
    done = parity.export(weights, out, to=to, dtype=dtype)
    assert all(each.passed for each in done.compared)
    assert done.about["dtype"] == dtype


@pytest.mark.exhaustive
def test_int8_says_what_it_costs(weights, tmp_path, capsys, monkeypatch):
    argv = ["export", str(weights), str(tmp_path / "own.onnx"), "--to", "onnx", "--dtype", "int8"]
    assert main(argv) == 0
    assert "dynamic quantisation to int8" in capsys.readouterr().out
    about = json.loads((tmp_path / "own.onnx.json").read_text())
    assert about["dtype"] == "int8"
    lost = {each["output"]: each["error"] for each in about["compared"]}
    assert 1e-4 < lost["logits"] < 0.1  # of a model of width 30
    assert {each["limit"] for each in about["compared"]} == {None}
    monkeypatch.setattr(programs, "fit", other_resize)  # which int8 does not hide
    assert main([*argv, "--force"]) == 1


def other_resize(xp, images, size, preprocess):
    return pixels.fit(xp, images, size, preprocess.replace(interpolation="bilinear"))


EXHAUSTIVE = [
    pytest.param(*each, marks=pytest.mark.exhaustive)
    for each in (
        ("onnx", "norm_epsilon", "uint8", "epsilon"),
        ("onnx", "resize", "uint8", "resize"),
        ("torch-export", "tanh_gelu", "float32", "activation"),
        ("torch-export", "norm_epsilon", "float32", "epsilon"),
        ("torch-export", "resize", "uint8", "resize"),
        ("stablehlo", "tanh_gelu", "float32", None),
        ("stablehlo", "norm_epsilon", "float32", None),
        ("stablehlo", "resize", "uint8", None),
    )
]


@pytest.mark.parametrize(
    ("to", "fault", "takes", "cause"), [("onnx", "tanh_gelu", "float32", "activation"), *EXHAUSTIVE]
)
def test_an_exporter_that_is_wrong_leaves_nothing_and_is_told_why(
    weights, tmp_path, capsys, monkeypatch, to, fault, takes, cause
):
    form = FORMATS[to]
    if fault == "resize":
        monkeypatch.setattr(programs, "fit", other_resize)
        fault = None

    def wrong(subject, about, settings):
        twin = "jax" if form.layout == "NHWC" else "torch"
        with inject(fault and f"{fault}@{twin}", CFG):
            return form.write(subject, about, settings)

    monkeypatch.setitem(FORMATS, form.name, replace(form, write=wrong))
    argv = ["export", str(weights), str(tmp_path / "out"), "--to", form.name, "--input", takes]
    assert main(argv) == 1
    said = capsys.readouterr()
    assert "not written" in said.err
    assert (f"1. {cause}: " if cause else "operations of StableHLO are not followed") in said.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"to": "tflite"}, ConfigError, "expected one of stablehlo, onnx, torch-export"),
        ({"to": "onnx", "input": "uint16"}, ConfigError, "expected one of uint8, float32, tokens"),
        ({"to": "onnx", "dtype": "int4"}, ConfigError, "one of float32, float16, bfloat16, int8"),
        ({"to": "stablehlo", "dtype": "int8"}, ConfigError, "--to onnx"),
        ({"to": "onnx", "labels": ["cat"]}, InputError, "no text tower"),
        ({"to": "stablehlo", "platforms": ["metal"]}, ConfigError, "cpu, cuda, rocm, tpu"),
        ({"to": "stablehlo", "platforms": ["tpu"]}, ConfigError, "run here, on a CPU; add cpu"),
        ({"to": "onnx", "preprocess": TOLD.replace(interpolation="nearest")}, ConfigError, "float32"),
    ],
)
def test_what_cannot_be_is_refused(weights, tmp_path, options, error, said):
    with pytest.raises(error, match=said):
        parity.export(weights, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_pictures_need_to_be_prepared_as_somebody_says(tmp_path):
    write_weights(tmp_path / "own.safetensors", CFG, arrays_of(CFG))
    with pytest.raises(InputError, match="--input float32"):
        parity.export(tmp_path / "own.safetensors", tmp_path / "out", to="onnx")


def test_files_are_replaced_only_when_told(weights, tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(ConfigError, match="exists"):
        parity.export(weights, tmp_path / "out", to="stablehlo")
    with pytest.raises(MissingFileError):
        parity.export(weights, tmp_path / "no" / "out", to="stablehlo")
    for force in (False, True):
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(ConfigError, match=r"config.json: already exists"):
            parity.export(weights, tmp_path / "config", to="stablehlo", force=force)
    with pytest.raises(ConfigError, match="is a folder"):
        parity.export(weights, weights.parent, to="stablehlo", force=True)
    with pytest.raises(ConfigError, match="is what is read"):
        parity.export(weights, weights, to="stablehlo", force=True)
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.exhaustive
def test_a_picture_has_timms_own_top_five(tmp_path):
    """By timm's model and transform, and by ONNX Runtime from the pixels of the picture."""
    import onnxruntime
    import torch
    from PIL import Image

    timm = import_timm()
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", depth=1, num_classes=37).eval()
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.1 * torch.randn_like(value))
    write_weights(
        tmp_path / "own.safetensors",
        preset("vit_tiny_patch16_224").replace(depth=1, num_classes=37),
        {name: value.numpy() for name, value in model.state_dict().items()},
        Preprocess(crop_fraction=0.9),
    )
    parity.export(tmp_path / "own.safetensors", tmp_path / "out.onnx", to="onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "out.onnx"))
    transform = timm.data.create_transform(
        input_size=224, interpolation="bicubic", mean=(0.5,) * 3, std=(0.5,) * 3, crop_pct=0.9
    )
    coarse = np.random.default_rng(5).integers(0, 256, (9, 13, 3), dtype=np.uint8)
    picture = Image.fromarray(coarse).resize((417, 301))
    with torch.no_grad():
        wanted = model(transform(picture)[None])[0].numpy()
    output = session.run(["logits"], {"images": np.asarray(picture)[None]})[0][0]
    np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    assert np.argsort(-output)[:5].tolist() == np.argsort(-wanted)[:5].tolist()
