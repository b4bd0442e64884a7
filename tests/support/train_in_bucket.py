"""`train.py` with object storage of its own, ``bucket://``: a folder that every process can reach."""

import sys

import fsspec
from fsspec.implementations.local import LocalFileSystem


class Bucket(LocalFileSystem):
    """Objects are files, and folders come by themselves."""

    protocol = "bucket"

    def __init__(self, **options):
        super().__init__(**{**options, "auto_mkdir": True})

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(str(path).removeprefix("bucket://"))


fsspec.register_implementation("bucket", Bucket, clobber=True)

if __name__ == "__main__":
    from parity.cli.dispatch import run

    sys.exit(run("train", sys.argv[1:], prog="train"))
