"""The functions of a copy's files, whose code a mutant's takes the place of."""

from __future__ import annotations

import ast
import gc
import sys
import types
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path


class Functions:
    """All of this process, as they are now."""

    def __init__(self, copy: Path) -> None:
        self._copy = copy
        self._functions: defaultdict[str, list[types.FunctionType]] = defaultdict(list)
        gc.unfreeze()
        for each in gc.get_objects():
            if type(each) is types.FunctionType and each.__code__.co_filename.startswith(f"{copy}/"):
                self._functions[each.__code__.co_filename].append(each)
        gc.freeze()

    def replace(self, file: str, tree: ast.Module, function: str) -> bool:
        """Whether a function of a file could be given the code of another tree."""
        path = str(self._copy / file)
        if not any(getattr(each, "__file__", None) == path for each in list(sys.modules.values())):
            return True  # imported when it is needed, from the file
        codes = [*_codes(compile(tree, path, "exec"))]
        new = {_place(code): code for code in codes if code.co_name != "<lambda>"}
        places = [(each, _place(each.__code__)) for each in self._functions[path]]
        own = f"{function}.<locals>."  # made by it when its file was imported
        replaced = [
            (each, new[place])
            for each, place in places
            if place in new and (place[0] == function or place[0].startswith(own))
        ]
        try:
            for each, code in replaced:
                each.__code__ = code
        except ValueError:  # the mutant takes no part in a variable outside of it
            return False
        return bool(replaced)


def _place(code: types.CodeType) -> tuple[str, int]:
    """The name and the first line of a function; one name may have several, as a property does."""
    return code.co_qualname, code.co_firstlineno


def _codes(code: types.CodeType) -> Iterable[types.CodeType]:
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from _codes(each)
