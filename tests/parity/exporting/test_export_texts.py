"""Text towers, and image towers with classes in words, leave as programs too."""

import json

import numpy as np
import pytest

import parity
from parity.cli import main
from parity.exporting.checks import Checks
from parity.exporting.compare import pictures
from parity.exporting.formats import FORMATS, Settings
from parity.exporting.replay import replay
from parity.exporting.subject import subject_of
from tests.support import text_models, tokenizers_tiny
from tests.support.replayed import replayed_here  # noqa: F401 - a fixture
from vit_config import ConfigError

CASES = [("siglip", "stablehlo")] + [
    pytest.param(kind, to, marks=pytest.mark.exhaustive)
    for kind in text_models.KINDS
    for to in FORMATS
    if (kind, to) != ("siglip", "stablehlo")
]
pytestmark = pytest.mark.usefixtures("replayed_here")
INPUTS = ("float32", "tokens")
TEXTS = ("a cat", "a small dog", "red")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}
    for kind in text_models.KINDS:
        made[kind] = tmp_path_factory.mktemp("towers")
        text_models.build(kind).float().save_pretrained(made[kind])
        save = tokenizers_tiny.save_words if kind == "siglip" else tokenizers_tiny.save_clip
        save(made[kind])
    return made


@pytest.mark.parametrize(("kind", "to"), CASES)
def test_a_text_tower_answers_as_the_twins_do(folders, tmp_path, kind, to):
    done = parity.export(folders[kind], tmp_path / f"texts{FORMATS[to].suffix}", to=to, input="tokens")
    loaded = parity.load(folders[kind], framework="jax").texts
    described = done.about["input"]
    assert described["shape"] == ["B", loaded.tokens.length]
    assert described["fill"] == {"id": loaded.tokens.pad, "left": loaded.tokens.left}
    ids = loaded.tokens.ids(TEXTS).astype(np.int32)
    output = replay(FORMATS[to], done.path, [ids])[0]
    np.testing.assert_allclose(output["text_embeds"], loaded.embed(TEXTS), rtol=1e-5, atol=1e-5)
    if to != "stablehlo":
        assert parity.diff((loaded.model, ids), (str(done.path), ids)).verdict == "EQUAL"


@pytest.mark.parametrize(("kind", "to"), CASES)
def test_classes_in_words_are_the_last_layer(folders, tmp_path, capsys, kind, to):
    out = tmp_path / "zero"
    argv = ["export", str(folders[kind]), str(out), "--to", to, "--input", "float32"]
    assert main([*argv, "--labels", "cat, small dog", "--template", "a {}"]) == 0
    assert "logits (B, 2)" in capsys.readouterr().out
    about = json.loads((tmp_path / "zero.json").read_text())
    assert (about["class_names"], about["texts"]) == (["cat", "small dog"], ["a cat", "a small dog"])
    pictures = text_models.pictures().astype(np.float32)
    given = pictures if FORMATS[to].layout == "NCHW" else pictures.transpose(0, 2, 3, 1)
    loaded = parity.load(folders[kind], framework="torch")
    images = loaded.of_batch(pictures.transpose(0, 2, 3, 1))
    wanted = loaded.texts.compare(images, loaded.texts.embed(about["texts"])).logits
    output = replay(FORMATS[to], out, [given])[0]["logits"]
    np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-5)


def test_inputs_and_outputs_have_the_names_that_people_expect(folders):
    """A SigLIP's image tower has no head: what it pools is compared with texts."""
    named = {
        kind: [(s.input_name, s.outputs) for s in (subject_of(folders[kind], input=i) for i in INPUTS)]
        for kind in ("clip", "siglip")
    }
    texts = ("input_ids", ("text_embeds", "pooled", "tokens"))
    assert named["clip"] == [("images", ("image_embeds", "pooled", "tokens")), texts]
    assert named["siglip"] == [("images", ("image_embeds", "tokens")), texts]


def test_a_program_of_other_texts_is_refused(folders, tmp_path):
    """Another tower's text is another function: the comparison can fail."""
    subject = subject_of(folders["siglip"], input="tokens")
    form, path = FORMATS["stablehlo"], tmp_path / "texts"
    path.write_bytes(form.write(subject, {}, Settings(["cpu"])))
    checks = Checks(subject, form, pictures(subject), None)
    assert all(each.passed for each in checks.compare(path, subject))
    subject.arrays["pos_embed"][3, 2] += 1e-3
    assert not all(each.passed for each in checks.compare(path, subject))


def test_labels_do_not_go_with_texts(folders, tmp_path):
    with pytest.raises(ConfigError, match="labels go with images"):
        parity.export(folders["clip"], tmp_path / "out", to="onnx", input="tokens", labels=["cat"])
