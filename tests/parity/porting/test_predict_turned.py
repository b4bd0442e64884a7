"""Photos that their camera noted to be turned: counted in a note, or turned first."""

import numpy as np
import pytest
from PIL import Image, ImageOps

from parity.cli import main
from tests.support.peers import redrawn
from tests.support.tiny import TINY
from vit_config import Preprocess, write_weights

NAMES = tuple(f"class {i}" for i in range(TINY.num_classes))
PIXELS = Preprocess(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25), crop_fraction=0.9, class_names=NAMES)


@pytest.mark.parametrize("command", ["predict", "embed"])
def test_photos_that_a_camera_turned_are_counted_or_turned(command, tmp_path, capsys):
    """The note of their number leads to the flag; what it gives is PIL's own turn."""
    file, exif = tmp_path / "it.safetensors", Image.Exif()
    write_weights(file, TINY, {n: a.astype(np.float32) for n, a in redrawn(TINY).items()}, PIXELS)
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8))
    exif[0x0112] = 6
    picture.save(tmp_path / "stored.png", exif=exif)
    ImageOps.exif_transpose(Image.open(tmp_path / "stored.png")).save(tmp_path / "turned.png")
    flag = {"predict": "--features", "embed": "--out"}[command]
    rows = {}
    for name, more in (("stored", []), ("stored", ["--exif", "apply"]), ("turned", [])):
        out = tmp_path / f"{name}{len(more)}.npy"
        given = [
            command,
            str(file),
            str(tmp_path / f"{name}.png"),
            flag,
            str(out),
            "--framework",
            "torch",
        ]
        assert main([*given, *more]) == 0
        said = "note: the camera noted of 1 photo that it is turned; --exif apply turns it first"
        assert (said in capsys.readouterr().err) == ((name, more) == ("stored", []))
        rows[name, bool(more)] = np.load(out)
    np.testing.assert_array_equal(rows["stored", True], rows["turned", False])
    assert np.abs(rows["stored", False] - rows["turned", False]).max() > 1e-4
