"""Text that a stranger wrote: what acts on a terminal is spelled out, and parsing ends."""

import io
import json
import os
import signal
import sys
import threading
import warnings
from types import SimpleNamespace

import pytest

from vit_config import Preprocess, ViTConfig, terminal
from vit_config.errors import ConfigError, about, one_line
from vit_config.files import foreign
from vit_config.files.foreign import check_ordinary, parse_json, parse_toml, read_text
from vit_config.screen import Screen, screen
from vit_config.terminal import any_letters, complain, harmless, say

pytestmark = pytest.mark.quick
ACTS = "\x1b[31m\x07\r\x08\x9b\x7f\u202e\u2066\u2028\udcff"
SPELLED = r"\x1b[31m\x07\x0d\x08\x9b\x7f\u202e\u2066\u2028\udcff"


def test_what_acts_on_a_terminal_is_spelled_out(capsys):
    assert harmless(ACTS) == SPELLED
    assert harmless("naïve 犬 🐕 \t|\n") == "naïve 犬 🐕 \t|\n"
    say("a\nparity convert: fine", ACTS.replace("\u2028", ""))
    complain("b\tc\n")
    out, err = capsys.readouterr()
    assert out == f"a parity convert: fine\n{SPELLED.replace(chr(92) + 'u2028', '')}\n"
    assert err == "b c \n"
    spelled: list[str] = []
    say("a", file=SimpleNamespace(write=spelled.append))  # which cannot be flushed
    assert "".join(spelled) == "a\n"


def test_an_output_of_few_letters_takes_any(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    with any_letters():
        say("caf\u00e9 \U0001f415")
    assert sys.stdout.errors == "strict"
    with any_letters():
        screen(60).print("\u00e9", end="")
    sys.stdout.flush()
    assert raw.getvalue() == rb"caf\xe9 \U0001f415" + b"\n" + rb"\xe9"
    sys.stdout.reconfigure(errors="replace")
    with any_letters():
        assert sys.stdout.errors == "replace"
    assert sys.stdout.errors == "replace"


def test_warnings_of_libraries_alone_are_silenced():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        terminal.keep_libraries_silent()
        for module in ("PIL", "PIL.Image", "PILE", "numpy", "mine"):
            warnings.warn_explicit(module, UserWarning, "a.py", 1, module=module)
    assert [str(each.message) for each in seen] == ["PILE", "mine"]


def test_no_process_waits_for_an_interrupt(monkeypatch):
    timer = SimpleNamespace(start=lambda: None)
    monkeypatch.setattr(terminal.threading, "Timer", lambda *_: timer)
    monkeypatch.setattr(sys, "unraisablehook", None)
    terminal.let_interrupts_through()
    sys.unraisablehook(SimpleNamespace(exc_value=KeyboardInterrupt()))
    assert timer.daemon


def test_an_interrupt_is_sent_to_the_main_thread(monkeypatch):
    sent = []
    monkeypatch.setattr(terminal.signal, "pthread_kill", lambda *given: sent.append(given))
    terminal._interrupt()
    assert sent == [(threading.main_thread().ident, signal.SIGINT)]


def test_messages_are_one_harmless_line():
    assert one_line("a\x1b[2Jb\nc\rd") == r"a\x1b[2Jb c d"
    assert about("/x\x1b/y", "/x\x1b/y: gone") == r"/x\x1b/y: gone"
    assert about("/x\x1b/y", "gone") == r"/x\x1b/y: gone"


def test_rich_prints_own_colours_and_no_others():
    file = io.StringIO()
    console = Screen(file=file, force_terminal=True, color_system="standard", width=60)
    console.print("[red]own[/]", end="")
    assert "\x1b[31mown" in file.getvalue()
    console.print("\x1b]0;title\x07", markup=False, highlight=False)
    assert r"\x1b]0;title" in file.getvalue()
    assert "\x1b]" not in file.getvalue()
    assert screen(77, file=io.StringIO()).width == 77


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 200_000, "deep"),
        ('{"a":' * 200_000, "deep"),
        ('{"a":' + "9" * 5000 + "}", "digits"),
        ("[" + "[]," * 1_100_000 + "0]", "more than"),
        ("[" + "0," * 4_100_000 + "0]", "more than"),
        ('["\\ud800"]', "surrogates"),
        ('["\\uDFFF"]', "surrogates"),
    ],
)
def test_json_that_would_not_end_is_a_value_error(text, said):
    with pytest.raises(ValueError, match=said):
        parse_json(text)
    with pytest.raises(ConfigError, match="x: not valid JSON") as caught:
        ViTConfig.from_json(text, where="x")
    assert "\n" not in str(caught.value)


def test_honest_json_is_read_as_before():
    content = {"a": [1, 2.5, None, {"b": "\U0001f415 \u00e9"}]}
    assert parse_json(json.dumps(content)) == parse_json(json.dumps(content).encode()) == content
    with pytest.raises(json.JSONDecodeError):
        parse_json("{")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "[" * 100_000, "deep"),
        (" . ".join("a" * 100) + " = 1", "parts"),
        ("[" + ".".join("a" * 5000) + "]", "parts"),
        ("a = {" + ".".join("b" * 5000) + " = 1}", "parts"),
        ("\n".join(f"a{number} = 1" for number in range(200_000)), "characters"),
        ("a = " + "9" * 5000, "digits"),
    ],
)
def test_toml_that_would_not_end_is_a_value_error(text, said):
    with pytest.raises(ValueError, match=said):
        parse_toml(text)
    with pytest.raises(ConfigError, match="x: not valid TOML"):
        Preprocess.from_toml(text, where="x")


def test_limits_of_a_text(tmp_path, monkeypatch):
    assert parse_toml("#" * 2**20) == {}
    with pytest.raises(ValueError, match="characters"):
        parse_toml("#" * (2**20 + 1))
    assert parse_toml(".".join("a" * 65) + " = 1")
    with pytest.raises(ValueError, match="64 parts"):
        parse_toml(".".join("a" * 66) + " = 1")
    monkeypatch.setattr(foreign, "_MOST_CONTAINERS", 2)
    assert parse_json("[{}]") == [{}]
    with pytest.raises(ValueError, match="more than 2 lists"):
        parse_json("[[{}]]")
    with (tmp_path / "long").open("wb") as file:
        file.truncate(2**26 + 1)
    with pytest.raises(ValueError, match="more than 67108864 bytes"):
        read_text(tmp_path / "long")


def test_only_ordinary_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "long").write_text("x" * 11)
    for name in ("pipe", "link"):
        with pytest.raises(ValueError, match="not a file"):
            read_text(tmp_path / name)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        read_text(tmp_path / "long", 10)
    assert read_text(tmp_path / "long", 11) == "x" * 11
    check_ordinary(tmp_path)
    check_ordinary(tmp_path / "nothing")


def test_a_schema_says_no_number_that_nothing_could_hold():
    for field, value in {"depth": 10**9, "num_classes": 10**9}.items():
        with pytest.raises(ConfigError, match=f"{field} = {value}"):
            ViTConfig(**{field: value})


def test_an_answer_that_nobody_waits_for_is_not_printed(monkeypatch, capsys):
    said: list[object] = []
    monkeypatch.setattr("sys.excepthook", sys.__excepthook__)
    monkeypatch.setattr("sys.unraisablehook", said.append)
    terminal.keep_libraries_silent()
    terminal.let_interrupts_through()
    answers = [SimpleNamespace(exc_value=RuntimeError(e)) for e in ("Event loop is closed", "another")]
    for each in answers:
        sys.excepthook(RuntimeError, each.exc_value, None)
        sys.unraisablehook(each)
    assert capsys.readouterr().err == "RuntimeError: another\n"
    assert said == answers[1:]
