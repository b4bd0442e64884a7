"""Image data sets by name; the packages of a kind of set are imported when it is asked for."""

from __future__ import annotations

from pathlib import Path

from vit_config.errors import DataError
from vit_train.data.dataset import ImageDataset
from vit_train.sources.place import place

KINDS = '"digits", "mnist5k", "tfds:NAME", "folder:PATH", "table:FILE", "tar:PATH" or "hf:PATH"'


def open_dataset(spec: str, data_dir: Path) -> ImageDataset:
    """Open a data set.

    Args:
        spec: "digits", scikit-learn's digits, prepared on first use; "mnist5k", images of MNIST, see
            `vit_train.sources.mnist5k`; "tfds:NAME", a set of tensorflow-datasets in `data_dir`, see
            `vit_train.sources.tfds_sets`; "folder:PATH", images in folders, see
            `vit_train.sources.folder`; "table:FILE", images that a table lists, see
            `vit_train.sources.table`; "tar:PATH", images in tar files as webdataset writes them, see
            `vit_train.sources.tar_shards`; "hf:PATH", Arrow or Parquet files of Hugging Face's
            `datasets`, see `vit_train.sources.arrow`. PATH may be on object storage, see
            `vit_train.sources.place`.
        data_dir: the folder of prepared sets of tensorflow-datasets.

    Raises:
        MissingFileError: the set is not there, or one of its files is gone.
        DataError: the spec is unknown, or the set cannot be used; the message says why.
    """
    kind, _, name = spec.partition(":")
    if kind == "folder" and name:
        from vit_train.sources.folder import open_folder

        return open_folder(spec, place(name))
    if kind == "table" and name:
        from vit_train.sources.table import open_table

        return open_table(spec, place(name))
    if kind == "tar" and name:
        from vit_train.sources.tar_shards import open_tar

        return open_tar(spec, place(name))
    if kind == "hf" and name:
        from vit_train.sources.arrow import open_arrow

        return open_arrow(spec, place(name))
    if spec == "mnist5k":
        from vit_train.sources.mnist5k import open_mnist5k

        return open_mnist5k(spec)
    if spec == "digits" or (kind == "tfds" and name):
        from vit_train.sources.tfds_sets import open_tfds

        return open_tfds(spec, name, data_dir)
    folder = bool(spec) and Path(spec).expanduser().is_dir()
    hint = f"; {spec} is a folder: folder:{spec}?" if folder else ""
    raise DataError(f"data set {spec!r} is unknown; expected {KINDS}{hint}")
