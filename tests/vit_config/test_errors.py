"""A message names the file it is about, once, in one line."""

from pathlib import Path

import pytest

from vit_config import CheckpointError, MissingFileError
from vit_config.errors import UnstatedError, about, first_line, naming

pytestmark = pytest.mark.quick

PATH = Path("runs") / "a.safetensors"


def test_the_path_stands_before_what_does_not_name_it():
    assert about(PATH, "is damaged") == f"{PATH}: is damaged"
    assert about(PATH, f"no {PATH} here") == f"no {PATH} here"
    assert about(PATH, "is damaged", part=", step 3") == f"{PATH}, step 3: is damaged"


def test_names_in_a_file_cannot_break_the_line():
    assert (
        about(PATH, "a tensor\nof\r\nthree \udcff lines") == f"{PATH}: a tensor of three \\udcff lines"
    )
    assert len(about(PATH, "x" * 10_000)) < 4_100


def test_a_message_of_nothing_is_the_kind_of_the_error():
    assert first_line(EOFError()) == first_line(EOFError("\n")) == "EOFError"
    assert first_line(ValueError("\nnot JSON\nat line 3")) == "not JSON"
    assert first_line("\n  What it is.\n\nMore.") == "What it is."
    assert first_line(None) == first_line("") == ""


def test_an_error_keeps_its_kind_and_what_it_asks_for():
    with pytest.raises(UnstatedError) as caught, naming(PATH), naming(PATH):
        raise UnstatedError("nothing says act", ("act",))
    assert (str(caught.value), caught.value.fields) == (f"{PATH}: nothing says act", ("act",))
    for kind in (CheckpointError, MissingFileError):
        with pytest.raises(kind) as other, naming(PATH):
            raise kind("is not whole")
        assert str(other.value) == f"{PATH}: is not whole"


def test_what_is_no_mistake_of_the_user_passes():
    with pytest.raises(KeyError) as caught, naming(PATH):
        raise KeyError("a fault of this program")
    assert caught.value.args == ("a fault of this program",)
