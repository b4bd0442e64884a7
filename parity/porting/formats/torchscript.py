"""TorchScript archives (``torch.jit.save``): the parameters of the program, which is never run."""

from __future__ import annotations

from parity.porting.formats.archive import Archive
from parity.porting.formats.flatten import Flat
from parity.porting.formats.torch_zip import read_torch_zip
from vit_config.errors import WeightsError


def read_torchscript(archive: Archive, prefix: str) -> Flat:
    """Read the attributes of the module by their dotted names, ignoring its classes and code.

    Raises:
        WeightsError: the archive is damaged, or of a version that keeps its tensors elsewhere.
    """
    if f"{prefix}data.pkl" not in archive.names:
        raise WeightsError(
            f"{archive.path}: TorchScript older than PyTorch 1.3; save it with a newer one"
        )
    return read_torch_zip(archive, prefix, torchscript=True)
