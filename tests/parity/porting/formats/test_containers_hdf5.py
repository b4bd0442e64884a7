"""Files of Keras: what h5py 3.16 wrote is read, what is written is read again, and nothing else is."""

import base64
import re
import struct
import zlib

import ml_dtypes
import numpy as np
import pytest

from parity.porting.formats import open_container, write_hdf5
from parity.porting.formats.hdf5 import MAGIC
from tests.support.container_files import assert_same_bits, loaded, stored, write_file
from vit_config import ConfigError, WeightsError

OF_H5PY = (
    "eNrtW01ME0EUfrv9YVM1tBGhEBP34IGoIVSrVkVZpIWaEGmUAwcPbUINJFAIEAUvcsRbjxw5euToyfTIkSNHjhw5csPd7nvL"
    "zrS7raYgpe9LNtOZeZ19/fre7Ju3Mz+y6YlbkYEIWNA0CEIU3DhDnL4T69Sfx1LBchvLnyq1K9W+OLbHcHxZbuZDJmNJn0lw"
    "FEG1BoHRichmxnJWOYt1A8t9VZRbLGwWV9cAllfWF5YWvhVXsX2+sPjZKr8ur86Z3VBaLhWt+lKhtOm237h0XwVCdp9CddsC"
    "FdVuoNsHsJTrAXNESzKm3zN9y4IOfRr0fcf+EGjVflW1B9RQg4Bifqyr0cZ//R+8/Hk2iNqFm/Pn+dt2qbFpsz+fT++wExbl"
    "5oqltaLLP7MXZL/ZGHpbl79+qS5xvC8Fa7ZppX5qday8pN9ej10/6LXLmzgDWvNTj+lFpcJSdT7rV5TqN6KOTprwfA6Z1/GA"
    "+MwG2Bq1p1TDvLbMa9eAFPy2fmplFIyg6zuq33egYl5HlmJjpgbmpZvX8BhbO4PBYDAYVwsf30+nFQibqxKMx5P+8hSvDwfF"
    "GEKO/1MUD6VEuRWsl1/iONg++Mz/vhR/nT4Ux9Mf4XpwSMwPxJ9eLo+N1jvZPl7vsJ85i3o4CYt2LK8/GP/mZ+W4OF8wOjuv"
    "QOv8k15Rjp47CRD90GiRf5e7xHHl9TvDj0fV4VEPNBcXHPYzd27U5q1tT1AUMW99nq+mPHU3tkUhEoJIN/Z756nj+FcFJQ22"
    "rxQfk+PTU4rLYNz5MAuUZyQ+6NesFzfW3eNUutm2GAwGg8FgMBgMBoPBuKqozYeI+2ICEK1+jmrg7NOz8wNeeY+7HnmP3Tbh"
    "o/4+KPl9WqN8+wYmUPm9VmfCa59cfkiUa/0+ufr2e0T3TTRnv5XHbL9sv7X2qydEuWHH7lpjv/L7ol9D4viyHTOa4/H4AXPS"
    "mvio0fsiOy66g23ecZLuESfttHm8aL8v89pvfc4HSHzc18SZpl35EM/BEOR/OSjxFdNHkSEDkjcgeYbvd73tp+YkGEWebWEf"
    "f3/uJ9mm/lI/HpP3+9nxmOoZj2mvwLX6AtjK2GWOp+iOisf2sD6P5UH6MuKIsBNHpJ77y9PsnRvxl6O48nDSXy5P8UuDwJL8"
    "K//aX478Z+XNdZkXU9c6jvh7PkaYD4EPg/kQ+EgzHwIfWeZD4GOK+RD4yDEfAh8zbcmHnK+j9BmmeeEJlnTMiY4J0fEjCvvo"
    "/NILGgcHTCQuIg8Yds4tVU9VN/G7yoa/HOm/2+D0NQ2z97ZBXI5lZdxfjtZp+xPXxQ9meV4Q+PjEfAh85NuSjz9w8C/2"
)  # fmt: skip
"""Groups with arrays of four types, an empty one, a text, an attribute, and twelve scalars."""


def test_what_h5py_wrote_is_read(tmp_path):
    path = tmp_path / "of_h5py.weights.h5"
    path.write_bytes(zlib.decompress(base64.b64decode(OF_H5PY)))
    expected = {
        "half": np.asarray([1.5, 2.0], ml_dtypes.bfloat16),
        "layers/dense/vars/0": np.arange(6, dtype=np.float32).reshape(2, 3),
        "layers/dense/vars/1": np.array([0.5, -1.5], np.float16),
        "none": np.zeros((0, 4)),
        "optimizer/vars/0": np.asarray(7, np.int32),
        **{f"many/{number}": np.float32(number) for number in range(12)},
    }
    assert_same_bits(loaded(open_container(path).tensors), expected)


def written(path, **more):
    arrays = {f"layers/a/vars/{number}": np.float32([number]) for number in range(40)}
    arrays |= {"b": np.arange(12.0).reshape(3, 4), "empty/c": np.zeros((0, 3), np.float16), **more}
    write_file(write_hdf5, path, stored(arrays))
    return arrays


def test_what_is_written_is_read(tmp_path):
    arrays = written(tmp_path / "a.h5")
    assert_same_bits(loaded(open_container(tmp_path / "a.h5").tensors), arrays)
    with pytest.raises(ConfigError, match="x: Keras' files hold no bfloat16"):
        written(tmp_path / "a.h5", x=np.zeros(2, ml_dtypes.bfloat16))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (MAGIC + b"\0", MAGIC + b"\2", "superblock 2"),
        (struct.pack("<HHB", 8, 24, 0), struct.pack("<HHB", 11, 24, 0), "neither a group nor an array"),
        (struct.pack("<BB", 3, 1), struct.pack("<BB", 3, 2), "not in one piece"),
        (struct.pack("<HHB", 3, 24, 0), struct.pack("<HHB", 3, 24, 2), "lies elsewhere"),
        (b"SNOD", b"SNOT", "no names at byte"),
        (b"TREE", b"TREF", "no table of names"),
        (b"HEAP", b"HEAT", "no names at byte"),
    ],
)
def test_other_parts_of_the_format_are_one_line(old, new, said, tmp_path):
    path = tmp_path / "a.h5"
    written(path)
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(WeightsError, match=re.escape(str(path))) as caught:
        open_container(path)
    assert re.search(said, str(caught.value))
    assert "\n" not in str(caught.value)
