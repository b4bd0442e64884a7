"""The HTTP server of docs/serving.md runs as it stands, on the loopback."""

import io
import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.error import HTTPError, URLError

import numpy as np
import pytest
from PIL import Image

import parity
from tests.support.convert_cases import arrays_of
from tests.support.tiny import TINY, error
from vit_config import Preprocess, write_weights
from vit_config.errors import InputError

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"
CFG = TINY.replace(depth=1, num_classes=3)
PIXELS = Preprocess(
    mean=(0.5, 0.4, 0.3), std=(0.25,) * 3, image_size=CFG.image_size, class_names=("ape", "bee", "cat")
)


def jpeg(picture):
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address of a server, and the model behind it."""
    folder = tmp_path_factory.mktemp("served")
    write_weights(str(folder / "own.safetensors"), CFG, arrays_of(CFG), PIXELS)
    parity.export(folder / "own.safetensors", folder / "vit.onnx", to="onnx")
    (source,) = re.findall(r"```python\n(# server\.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert source.count("8000") == 1
    script = source.replace("8000", str(port))
    with subprocess.Popen([sys.executable, "-c", script], cwd=folder, stderr=subprocess.PIPE) as server:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert server.poll() is None, server.stderr.read()
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}", parity.load(folder / "own.safetensors", framework="torch")
        server.terminate()
        said = server.stderr.read().decode()
    assert "Traceback" not in said


def answer(address, content):
    with urllib.request.urlopen(address, content, timeout=20) as response:
        return json.load(response)


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "CMYK"])
def test_pictures_of_any_kind_are_classified(served, mode):
    address, loaded = served
    drawn = Image.fromarray(np.random.default_rng(0).integers(0, 256, (31, 23, 3), dtype=np.uint8))
    picture = drawn.convert(mode)
    file = io.BytesIO()
    picture.save(file, "TIFF" if mode == "CMYK" else "PNG")
    content = file.getvalue()
    got = answer(address, content)
    logits = loaded.logits(Image.open(io.BytesIO(content)).convert("RGB"))
    assert list(got) == [PIXELS.class_names[n] for n in np.argsort(-logits.ravel())]
    assert error([got[name] for name in PIXELS.class_names], logits.ravel()) < 1e-5


def test_pictures_of_more_than_8_bits_are_refused_as_predict_refuses_them(served):
    address, loaded = served
    picture = Image.new("I;16", (23, 31), 700)
    with pytest.raises(HTTPError) as refused:
        answer(address, jpeg(picture))
    assert refused.value.code == 400
    assert "more than 8 bits per channel" in json.load(refused.value)["error"]
    with pytest.raises(InputError, match="more than 8 bits per channel"):
        loaded.predict(picture)


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n" + bytes(40)])
def test_what_is_no_picture_is_answered_with_400(served, content):
    address, _ = served
    with pytest.raises(HTTPError) as refused:
        answer(address, content)
    assert refused.value.code == 400
    assert json.load(refused.value)["error"]


def test_a_length_that_is_none_is_answered_too(served):
    address, _ = served
    request = urllib.request.Request(address, b"x", {"Content-Length": "many"})
    with pytest.raises((HTTPError, URLError)):
        urllib.request.urlopen(request, timeout=20)
    assert answer(address, jpeg(Image.new("RGB", (9, 9))))
