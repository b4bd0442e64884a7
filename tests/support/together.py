"""Real processes on this machine that train as one."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from parity.measure.compiling import quickly
from vit_train.folder.log import read_log

ROOT = Path(__file__).parents[2]


def free_port():
    """A port that nobody listens on just now."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


class Together:
    """Processes of one command, each with some emulated devices; a `with` statement ends them all.

    Args:
        folder: where what they print goes, a file each.
        program: what is run.
        caches: the folder of each for what it keeps; all have the usual one without.
    """

    def __init__(self, argv, folder, *, count=2, devices=2, program=ROOT / "train.py", caches=()):
        environment = os.environ | {
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices} {quickly()}",
            "PYTHONPATH": str(ROOT),
        }
        coordinator = f"localhost:{free_port()}"
        self.files = [folder / f"printed-{number}.txt" for number in range(count)]
        self.processes = []
        for number, file in enumerate(self.files):
            own = ["--coordinator", coordinator, "--process", f"{number}/{count}"]
            command = [sys.executable, str(program), *argv, *own]
            its = {"XDG_CACHE_HOME": str(caches[number])} if caches else {}
            with file.open("w") as printed:
                self.processes.append(
                    subprocess.Popen(
                        command,
                        env=environment | its,
                        cwd=folder,
                        stdout=printed,
                        stderr=subprocess.STDOUT,
                    )
                )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()

    def wait_for_step(self, run_dir, step, seconds=300):
        """Until the log has that step, or a process has ended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if (run_dir / "log.jsonl").is_file() and max(
                (event["step"] for event in read_log(run_dir)), default=0
            ) >= step:
                return
            assert all(process.poll() is None for process in self.processes), self.printed()
            time.sleep(0.2)
        raise AssertionError(f"no step {step}: {self.printed()}")

    def stop(self, number):
        """Tell one of them to stop, as Ctrl-C does; it tells the others by SIGTERM."""
        self.processes[number].send_signal(signal.SIGINT)

    def wait(self, seconds=300):
        """The exit status of each."""
        return [process.wait(seconds) for process in self.processes]

    def printed(self):
        """What each printed."""
        return [file.read_text() for file in self.files]
