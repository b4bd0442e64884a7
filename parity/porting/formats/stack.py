"""The stack and the memo of a pickle, and the opcodes that build containers on them."""

from __future__ import annotations

from typing import Any

from parity.porting.formats.inert import Global, Inert

_MARK = object()
_LONGEST_KEY = 4096
_LONGEST_TUPLE = 16


class Stack:
    """Stack and memo of a pickle; each opcode is a method ``_do_`` + its name in lower case."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def _take(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value should be")
        return value

    def _top(self) -> Any:
        if self._stack[-1] is _MARK:
            raise ValueError("a mark where a value should be")
        return self._stack[-1]

    def _take_to_mark(self) -> list[Any]:
        """Remove and return the values above the last mark."""
        index = len(self._stack) - 1
        while self._stack[index] is not _MARK:
            index -= 1
            if index < 0:
                raise ValueError("a missing mark")
        values = self._stack[index + 1 :]
        del self._stack[index:]
        return values

    # Stack and memo

    def _do_mark(self, _: None) -> None:
        self._stack.append(_MARK)

    def _do_pop(self, _: None) -> None:
        self._stack.pop()

    def _do_pop_mark(self, _: None) -> None:
        self._take_to_mark()

    def _do_dup(self, _: None) -> None:
        self._stack.append(self._top())

    def _do_memoize(self, _: None) -> None:
        self._memo[len(self._memo)] = self._top()

    def _do_put(self, key: int) -> None:
        self._memo[key] = self._top()

    _do_binput = _do_long_binput = _do_put

    def _do_get(self, key: int) -> None:
        self._stack.append(self._memo[key])

    _do_binget = _do_long_binget = _do_get

    # Containers

    def _do_tuple1(self, _: None) -> None:
        self._stack.append((self._take(),))

    def _do_tuple2(self, _: None) -> None:
        second, first = self._take(), self._take()
        self._stack.append((first, second))

    def _do_tuple3(self, _: None) -> None:
        third, second, first = self._take(), self._take(), self._take()
        self._stack.append((first, second, third))

    def _do_tuple(self, _: None) -> None:
        self._stack.append(tuple(self._take_to_mark()))

    def _do_frozenset(self, _: None) -> None:
        self._stack.append(frozenset(map(key_of, self._take_to_mark())))

    def _do_append(self, _: None) -> None:
        self._extend([self._take()])

    def _do_appends(self, _: None) -> None:
        self._extend(self._take_to_mark())

    def _do_additems(self, _: None) -> None:
        values = self._take_to_mark()
        if not isinstance(target := self._top(), set):
            raise TypeError("additems to something that is not a set")
        target.update(map(key_of, values))

    def _do_setitem(self, _: None) -> None:
        value, key = self._take(), self._take()
        self._set_all([key, value])

    def _do_setitems(self, _: None) -> None:
        self._set_all(self._take_to_mark())

    def _extend(self, values: list[Any]) -> None:
        target = self._top()
        if isinstance(target, Inert):
            target = target.elements
        if not isinstance(target, list):
            raise TypeError("append to something that is not a list")
        target.extend(values)

    def _set_all(self, values: list[Any]) -> None:
        target = self._top()
        if isinstance(target, Inert):
            target = target.items
        if not isinstance(target, dict) or len(values) % 2:
            raise TypeError("items set in something that is not a dict")
        target.update(zip(map(key_of, values[::2]), values[1::2], strict=True))


def key_of(value: Any) -> Any:
    """Return a dict key or member of a set, refusing all but scalars, records and short flat tuples.

    Hashing a deep or wide tree of tuples, or the same long text again and again, would take forever or
    overflow the stack of the interpreter.
    """
    if isinstance(value, tuple):
        if len(value) > _LONGEST_TUPLE or any(isinstance(each, tuple) for each in value):
            raise ValueError("a key that is a long or nested tuple")
        for each in value:
            key_of(each)
    elif isinstance(value, str | bytes):
        if len(value) > _LONGEST_KEY:
            raise ValueError(f"a key of {len(value)} characters")
    elif isinstance(value, int):
        if value.bit_length() > 64:
            raise ValueError("a key that is a giant number")
    elif not isinstance(value, float | complex | None | Global | Inert):
        raise TypeError(f"a key of type {type(value).__name__}")
    return value
