"""Many checkpoints at once: look through a folder, write down what is in it, convert it all.

`manifest.py` is the list that lies between the two: `scan.py` writes it, its reader fills in what no
file says, `run_manifest.py` works through it. What was done is in a ledger (`ledger.py`), so that a run
that was stopped, or killed, goes on where it was.
"""

from parity.porting.fleet.manifest import Job, Manifest
from parity.porting.fleet.run_manifest import run_manifest
from parity.porting.fleet.scan import Scan, scan

__all__ = ["Job", "Manifest", "Scan", "run_manifest", "scan"]
