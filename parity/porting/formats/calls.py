"""Results of the calls in a pickle, built by this package's own code; other calls give inert records."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import partial
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from parity.porting.formats.inert import Global, Inert, NumpyArray, Refused, describe_value
from parity.porting.formats.numpy_pickles import from_buffer, make_scalar, make_type
from parity.porting.formats.stack import key_of
from parity.porting.formats.torch_types import View, make_view, torch_dtype
from vit_config.files.stored import Stored

_LONGEST_PATH = 2**16


def call(function: Any, args: Any) -> Any:
    """Build the result of calling `function` with `args`; `function` is never looked up or called.

    Raises:
        TypeError, ValueError: the real function could not have had these arguments.
    """
    if not isinstance(function, Global) or not isinstance(args, tuple):
        raise TypeError("a call of something that is not named")
    known = _CALLS.get(str(function))
    if known is not None:
        return known(*args)
    if function.module == "datetime" or function.module.split(".")[0] == "pathlib":
        return _text(function, args)
    return Inert(function, args)


def _dict(entries: Any = ()) -> dict:
    pairs = entries.items() if isinstance(entries, dict) else map(tuple, entries)
    return {key_of(key): value for key, value in pairs}


def _default_dict(_: Any = None, entries: Any = ()) -> dict:
    return _dict(entries)


def _list(entries: Any = ()) -> list:
    if not isinstance(entries, list | tuple | set | frozenset | dict):
        raise TypeError("a list of something that has no entries")
    return list(entries)


def _bytes(*args: Any) -> bytes:
    # bytes(n) would reserve as much memory as a file asks for
    match args:
        case ():
            return b""
        case (bytes() | bytearray() as content,):
            return bytes(content)
        case (str() as text, str() as encoding, *_):
            return _encode(text, encoding)
        case (list() as numbers,):
            return bytes(numbers)
    raise TypeError("bytes of something else")


def _encode(text: str, encoding: str = "utf-8", *_: Any) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "utf-8", "ascii"):
        raise ValueError(f"text encoded as {describe_value(encoding)}")
    return text.encode(encoding)


def _numbers(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any) -> Any:
        if any(not isinstance(each, int | float | None) for each in args):
            raise TypeError(f"{make.__name__} of something that is not a number")
        return make(*args)

    return made


def _text(function: Global, args: tuple) -> Any:
    """Return a path or a date as text."""
    if any(not isinstance(each, int | str | bytes) for each in args):
        return Inert(function, args)
    if function.module == "datetime":
        try:
            return str(_DATES[function.name](*args))
        except (TypeError, ValueError, OverflowError):
            return Inert(function, args)
    if sum(len(each) for each in args if isinstance(each, str | bytes)) > _LONGEST_PATH:
        raise ValueError(f"a path of more than {_LONGEST_PATH} characters")
    cls = PureWindowsPath if "Windows" in function.name else PurePosixPath
    return str(cls(*args))


def _reconstructed(cls: Any, base: Any = None, state: Any = None) -> Any:
    """Build the result of ``copyreg._reconstructor``, used by protocols 0 and 1."""
    if not isinstance(cls, Global):
        raise TypeError("an object whose class is not named")
    made = Inert(cls)
    if isinstance(state, dict):
        made.items.update(state)
    elif isinstance(state, list):
        made.elements.extend(state)
    return made


def _tensor(storage: Any, offset: Any, shape: Any, stride: Any, *rest: Any) -> View | Refused:
    if isinstance(storage, Refused):
        return storage
    if len(rest) > 2 and rest[2]:
        return Refused("a tensor that is conjugated or negated only when it is read; save a clone of it")
    return make_view(storage, offset, shape, stride)


def _tensor_v3(storage: Any, offset: Any, shape: Any, stride: Any, *rest: Any) -> View | Refused:
    dtype = torch_dtype(rest[2])
    if dtype is None:
        return Refused(f"a tensor of {describe_value(rest[2])}, which no array of numpy can hold")
    if isinstance(storage, Refused):
        return storage
    return make_view(storage, offset, shape, stride, dtype)


def _data(data: Any, *_: Any) -> Any:
    """Return the tensor of a parameter."""
    if not isinstance(data, View | Refused):
        raise TypeError("a parameter that is not a tensor")
    return data


def _from_type(function: Any, _: Any, args: Any, __: Any = None) -> Any:
    """Return the tensor of ``torch._tensor._rebuild_from_type_v2``, without its attributes."""
    return _data(call(function, args))


def _from_numpy(data: Any, dtype: Any, *_: Any) -> Any:
    if not isinstance(data, NumpyArray) or data.array is None:
        raise TypeError("a tensor that is not an array")
    if (target := torch_dtype(dtype)) is None:
        return Refused(f"a tensor of {describe_value(dtype)}, which no array of numpy can hold")
    return Stored(data.array.shape, target, partial(data.array.astype, target, order="C"))


def _refuse(kind: str) -> Callable[..., Refused]:
    return lambda *_: Refused(f"a {kind} tensor; save it as a plain one first")


def _first(value: Any, *_: Any) -> Any:
    return value


_DATES: dict[str, Callable[..., Any]] = {
    name: getattr(datetime, name) for name in ("date", "datetime", "time", "timedelta", "timezone")
}
_NUMPY_CORE = ("numpy.core", "numpy._core")
_CALLS: dict[str, Callable[..., Any]] = {
    "_codecs.encode": _encode,
    "builtins.dict": _dict,
    "collections.OrderedDict": _dict,
    "collections.Counter": _dict,
    "collections.defaultdict": _default_dict,
    "builtins.list": _list,
    "collections.deque": _list,
    "builtins.tuple": lambda *args: tuple(_list(*args)),
    "builtins.set": lambda *args: set(map(key_of, _list(*args))),
    "builtins.frozenset": lambda *args: frozenset(map(key_of, _list(*args))),
    "builtins.bytes": _bytes,
    "builtins.bytearray": _bytes,
    "builtins.complex": _numbers(complex),
    "builtins.slice": lambda *args: str(_numbers(slice)(*args)),
    "builtins.range": lambda *args: str(_numbers(range)(*args)),
    "copyreg._reconstructor": _reconstructed,
    "numpy.dtype": make_type,
    **{f"{core}.multiarray.scalar": make_scalar for core in _NUMPY_CORE},
    **{f"{core}.multiarray._reconstruct": lambda *_: NumpyArray() for core in _NUMPY_CORE},
    **{f"{core}.numeric._frombuffer": from_buffer for core in _NUMPY_CORE},
    "torch.Size": lambda *args: tuple(_list(*args)),
    "torch.device": lambda *args: ":".join(describe_value(each).strip("'") for each in args),
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _data,
    "torch._utils._rebuild_parameter_with_state": _data,
    "torch.nn.parameter.Parameter": _data,
    "torch.nn.parameter.Buffer": _data,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch._utils._rebuild_device_tensor_from_numpy": _from_numpy,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _data,
    "torch._utils._rebuild_qtensor": _refuse("quantised"),
    "torch._utils._rebuild_sparse_tensor": _refuse("sparse"),
    "torch._utils._rebuild_sparse_csr_tensor": _refuse("sparse"),
    "torch._utils._rebuild_nested_tensor": _refuse("nested"),
    "torch._utils._rebuild_meta_tensor_no_storage": _refuse("meta"),
    "torch._utils._rebuild_wrapper_subclass": _refuse("wrapped"),
    "torch._utils._rebuild_sharded_tensor": _refuse("sharded"),
    **{f"torch.jit._pickle.build_{name}list": _first for name in ("int", "double", "bool", "tensor")},
    "torch.jit._pickle.restore_type_tag": _first,
}
