"""A process of several that write a checkpoint together, and read it again; started by `Together`.

``python read_share.py FOLDER --coordinator ... --process ...`` prints, as JSON, how many bytes it read
from the disk to restore its share, and what it said of a checkpoint that was damaged in the second's.
"""

import argparse
import json
from pathlib import Path

import jax
import numpy as np
import tensorstore
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from vit_jax.train.checkpoint import Checkpoints
from vit_jax.train.hosts import join_processes
from vit_train.folder.checkpoints import DamagedError

SHAPE = (257 * 4, 263)
"""Of a float32 tensor, a megabyte that does not compress."""


def bytes_read():
    """By this process, from files."""
    metrics = tensorstore.experimental_collect_matching_metrics("/tensorstore/kvstore/file/bytes_read")
    return sum(value["value"] for metric in metrics for value in metric["values"])


def main(folder, coordinator, process):
    with join_processes(coordinator, process) as leads:
        # each process has a half, on both of its devices
        devices = np.array(jax.devices()).reshape(2, 2).T
        mesh = Mesh(devices, ("data", "fsdp"), axis_types=(AxisType.Auto,) * 2)
        split, whole = (NamedSharding(mesh, spec) for spec in (P("fsdp"), P()))
        values = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
        arrays = {"split": (values, split), "whole": (values[:3], whole)}
        state = {
            name: jax.make_array_from_callback(x.shape, place, lambda index, x=x: x[index])
            for name, (x, place) in arrays.items()
        }
        wanted = {
            name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
            for name, (x, place) in arrays.items()
        }
        with Checkpoints(folder, run_id="one") as checkpoints:
            checkpoints.save(1, state)
        with Checkpoints(folder, run_id="one") as checkpoints:
            before = bytes_read()
            restored = checkpoints.restore(1, wanted)
            read = bytes_read() - before
            for name, x in restored.items():
                for shard in x.addressable_shards:
                    np.testing.assert_array_equal(shard.data, arrays[name][0][shard.index])
            if leads:
                damage(folder / "1" / "state" / "ocdbt.process_1")
            multihost_utils.sync_global_devices("damaged")
            said = ""
            try:
                checkpoints.restore(1, wanted)
            except DamagedError as error:
                said = str(error)
    print(json.dumps({"read": read, "said": said}))


def damage(folder):
    """Change a byte of what one process wrote, inside of an array (in the middle two may meet)."""
    file = max(
        (path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )
    content = bytearray(file.read_bytes())
    content[len(content) // 5] ^= 1
    file.write_bytes(content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--coordinator")
    parser.add_argument("--process")
    main(**vars(parser.parse_args()))
