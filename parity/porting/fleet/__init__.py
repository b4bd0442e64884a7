"""Conversion of many checkpoints: scan a folder, list its checkpoints in a manifest, convert them all.

`scan.py` writes the manifest (`manifest.py`), the user fills in what no file states, and
`run_manifest.py` converts its checkpoints. A ledger (`ledger.py`) records each conversion, so that a run
that was stopped, or killed, continues where it was.
"""

from parity.porting.fleet.manifest import FleetJob, FleetManifest
from parity.porting.fleet.run_manifest import run_manifest
from parity.porting.fleet.scan import Scan, scan

__all__ = ["FleetJob", "FleetManifest", "Scan", "run_manifest", "scan"]
