"""The globals that a pickle may name.

A pickle can only name them: this package's own code (`calls.py`) builds an allowed global's object, or
keeps an inert record of it. A file with any other global is refused, as no checkpoint needs one.
"""

from __future__ import annotations

from vit_config.errors import WeightsError

_MODULES_OF_PYTHON_2 = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_NAMES_OF_PYTHON_2 = {"xrange": "range", "unicode": "str", "long": "int"}

_EXACT = {
    "_codecs.encode",
    "argparse.Namespace",
    "collections.Counter",
    "collections.OrderedDict",
    "collections.defaultdict",
    "collections.deque",
    "copyreg._reconstructor",
    "decimal.Decimal",
    "fractions.Fraction",
    "functools.partial",
    "types.SimpleNamespace",
    "uuid.UUID",
    *(f"builtins.{name}" for name in (
        "bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "object",
        "range", "set", "slice", "str", "tuple",
    )),
    *(f"datetime.{name}" for name in ("date", "datetime", "time", "timedelta", "timezone")),
    *(f"pathlib.{prefix}{name}" for prefix in ("", "_local.") for name in (
        "Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath",
    )),
    *(f"{module}.{name}" for name in ("scalar", "_reconstruct")
      for module in ("numpy.core.multiarray", "numpy._core.multiarray")),
    *(f"{module}._frombuffer" for module in ("numpy.core.numeric", "numpy._core.numeric")),
    "numpy.dtype",
    "numpy.ndarray",
    *(f"torch.jit._pickle.{name}" for name in (
        "build_intlist", "build_doublelist", "build_boollist", "build_tensorlist",
        "restore_type_tag", "build_tensor_from_id",
    )),
}  # fmt: skip

_MODULES = (
    "accelerate", "addict", "deepspeed", "detectron2", "easydict", "fvcore", "huggingface_hub",
    "lightning", "lightning_fabric", "lightning_utilities", "ml_collections", "ml_dtypes", "mmcls",
    "mmcv", "mmengine", "mmpretrain", "munch", "numpy.dtypes", "numpy.random", "omegaconf", "open_clip",
    "pytorch_lightning", "timm", "torch._C", "torch._tensor", "torch._utils", "torch.amp", "torch.cuda",
    "torch.distributed", "torch.nn", "torch.optim", "torch.serialization", "torch.storage",
    "torch.utils", "torchmetrics", "torchvision", "transformers", "typing", "yacs",
)  # fmt: skip
"""Modules of which every class is allowed, and their submodules."""

_TORCHSCRIPT = ("__torch__",)
_SHARDED = ("torch.distributed._shard.sharded_tensor.api", "ShardedTensor")


def python3_name(module: str, name: str) -> tuple[str, str]:
    """Return the name in Python 3 of a global of Python 2, whose names protocol 2 writes."""
    if module == "__builtin__":
        name = _NAMES_OF_PYTHON_2.get(name, name)
    return _MODULES_OF_PYTHON_2.get(module, module), name


def check_allowed(module: str, name: str, *, torchscript: bool = False) -> None:
    """Refuse a global that no checkpoint needs.

    Raises:
        WeightsError: the global is not allowed; nothing was executed.
    """
    if (module, name) == _SHARDED:
        raise WeightsError(
            "holds the part of each tensor that one process had (ShardedTensor), as FSDP's local and"
            " sharded state dicts do; load it in as many processes, and save what model.state_dict()"
            " returns under StateDictType.FULL_STATE_DICT, or a folder by torch.distributed.checkpoint"
        )
    modules = (*_MODULES, *_TORCHSCRIPT) if torchscript else _MODULES
    full = f"{module}.{name}"
    if full in _EXACT or any(module == each or module.startswith(f"{each}.") for each in modules):
        return
    if module == "torch" and name.replace("_", "").isalnum():  # storages, types, Size, device, layouts
        return
    raise WeightsError(
        f"the pickle names {full[:200]}, which is not allowed in a checkpoint; nothing was executed;"
        " if you trust the file, load it in the environment it came from and save model.state_dict()"
    )
