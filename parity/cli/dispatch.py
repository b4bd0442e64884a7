"""The `parity` command: finds the subcommand, and turns a user's mistake into one line."""

from __future__ import annotations

import importlib
import os
import select
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches

from parity.cli.support.advice import command_at_hand, here
from vit_config.errors import USER_ERRORS, one_line
from vit_config.terminal import any_letters, complain, keep_libraries_silent, let_interrupts_through, say

COMMANDS = {
    "check": "show that the twins are the same function, for a preset or a weights file",
    "check-steps": "show that the twins train alike, step by step and as whole runs",
    "diff": "find whether two programs are the same, forward and backward, and why not",
    "match": "find whether a checkpoint was really loaded, or which parameter of a file is which",
    "convert": "convert a checkpoint of any dialect to any other, exactly",
    "export": "write a model as StableHLO, ONNX or torch.export, read back and compared",
    "convert-run": "move a training run to JAX or PyTorch, also one of timm's or of the Trainer's",
    "compare-runs": "measure how far apart two training runs are",
    "scan": "list every checkpoint in a folder, ready to convert",
    "train": "train either twin, export the weights, score them in both frameworks",
    "preflight": "compile a run for TPUs that are not there: does it fit, what bounds it?",
    "eval": "evaluate a model on a data set: accuracy, classes, calibration",
    "predict": "predict the classes of images",
    "embed": "write the features of images",
    "plot": "draw a training run: curves, positions, attention",
    "list": "list the models, the dialects, the causes that diff names, or deliberate mistakes",
    "inspect": "show what a preset or checkpoint consists of, layer by layer",
}
INTERRUPTED = 130
"""Exit status after Ctrl-C; shells give it for SIGINT."""
FAULT = 70
"""Exit status of an internal error."""
UNREAD = 141
"""Exit status if nobody reads the output; shells give it for SIGPIPE."""
NO_ROOM = ("failed to map segment", "annot allocate memory", "cannot allocate")
"""Messages of the loader when a library needs more memory than the process may map."""
OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "not enough memory", "out of memory", "can't allocate memory")
"""Words of XLA's and PyTorch's errors, which are no `MemoryError`, where one cannot be had."""
NO_MEMORY = "there is not enough memory for it here; take a smaller model or a machine with more"
OWN_PACKAGES = ("parity", "vit_config", "vit_train", "vit_jax", "vit_torch")
"""Packages of this project: if one is missing, no user forgot to install it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Returns:
        The exit status: what the command says - 0 for yes, 1 for no, such as different - 2 for bad
        input, 70 for an internal error, 130 if it was interrupted.
    """
    return exit_status_of(_main(sys.argv[1:])) if argv is None else _main(list(argv))


def exit_status_of(status: int) -> int:
    """Return the exit status of a process, or end it here if it was interrupted.

    JAX's compiler goes on in a thread of its own after Ctrl-C: the end of the interpreter would wait for
    it, for a minute or more, and then crash.
    """
    if status == INTERRUPTED and "jaxlib" in sys.modules:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # nobody reads it, or it is closed
                stream.flush()
        os._exit(status)
    return status


def _main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        _print_help()
        return 0 if argv else 2
    if argv[0] == "--version":
        from parity.porting.opening.provenance import versions

        say(f"parity {versions().get('vit-parity', 'from a source tree that is not installed')}")
        return 0
    command, *words = argv
    if command not in COMMANDS:
        complain(f"parity: no command {command!r}; {_hint(command)}")
        return 2
    if command == "train" and words[:1] and words[0] in COMMANDS:  # as train.py has it
        complain(f"parity train: {words[0]} is a command of its own: parity {' '.join(words)}")
        return 2
    return run(command, words)


def _hint(word: str) -> str:
    """Say what may have been meant by a word that is no command."""
    if near := get_close_matches(word, COMMANDS, 1):
        return f"did you mean {near[0]}?"
    if os.path.exists(word):
        return f"parity inspect {word} shows what a checkpoint is"
    return f"the commands are {', '.join(COMMANDS)}"


def run(command: str, argv: Sequence[str], *, prog: str | None = None) -> int:
    """Run ``parity.cli.COMMAND.main(argv, prog)``; a user's mistake becomes one line and status 2.

    Args:
        prog: how the user calls the command; "parity COMMAND" by default.
    """
    prog = prog or f"parity {command}"

    def main() -> int:
        module = importlib.import_module(f"parity.cli.{command.replace('-', '_')}")
        return module.main(list(argv), prog)

    return in_one_line(main, prog)


def flags_of_convert() -> tuple[str, ...]:
    """Return the flags of `parity convert`, which advice refers to."""
    from parity.cli.convert import ConvertFiles
    from parity.cli.support.command_line import flags_of

    return tuple(flags_of(ConvertFiles))


def in_one_line(main: Callable[[], int], prog: str) -> int:
    """Run a program that the user calls `prog`; a user's mistake becomes one line and status 2."""
    keep_libraries_silent()
    usual = sys.unraisablehook
    let_interrupts_through()
    try:
        with any_letters(), command_at_hand(flags_of_convert):
            return _in_one_line(main, prog)
    finally:
        sys.unraisablehook = usual


def _in_one_line(main: Callable[[], int], prog: str) -> int:
    try:
        return main()
    except USER_ERRORS as error:
        message = here(str(error))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", *OWN_PACKAGES):
            return _fault(error, prog)
        extra = "all,peers" if package == "timm" else "all"
        message = f"needs the package {package}; pip install 'vit-parity[{extra}]'"
    except ImportError as error:
        if not any(words in str(error) for words in NO_ROOM):
            return _fault(error, prog)
        message = f"there is no memory left to load a library into ({error}); see `ulimit -v`"
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _is_unread():
            return UNREAD
        if error.strerror is None:
            return _fault(error, prog)
        message = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    except MemoryError:
        message = NO_MEMORY
    except KeyboardInterrupt:
        complain(f"{prog}: interrupted")
        return INTERRUPTED
    except Exception as error:
        if not any(words in str(error) for words in OUT_OF_MEMORY):
            return _fault(error, prog)
        message = NO_MEMORY
    complain(f"{prog}: {one_line(message)}")
    return 2


def _is_unread() -> bool:
    """Return whether nobody reads the output, as behind ``| head``; if so, discard the rest of it."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if not any(flags & select.POLLERR for _, flags in poll.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def _fault(error: Exception, prog: str) -> int:
    """Print an internal error; it must look neither like bad input nor like two models that differ."""
    complain(*"".join(traceback.format_exception(error)).splitlines())
    complain(f"{prog}: internal error, not a problem with your input; please report the traceback above")
    return FAULT


def _print_help() -> None:
    from rich.table import Table

    from parity.measure.tables import show_table
    from vit_config.screen import screen

    table = Table(box=None, show_header=False, padding=(0, 2))
    for name, text in COMMANDS.items():
        table.add_row(f"[bold]{name}", text)
    console = screen()
    console.print("usage: parity COMMAND [OPTIONS]\n")
    show_table(table, console)
    console.print("\nparity COMMAND --help explains one command; parity --version prints the version.")
