"""Write down what the compiled training step of each kind of block consists of.

``tools/step_counts.py --why "REASON"`` compiles each for CPU and rewrites the file;
tests/vit_jax/test_step_counts.py fails where a step has more of anything than the file allows.
"""

import argparse
import json
import sys
from pathlib import Path

import jaxlib

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.vit_jax.test_step_counts import KINDS, LOCK, counts

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--why", required=True, help="one line: what made the counts change")
    why = parser.parse_args().why.strip()
    if not why:
        parser.error("--why is empty; say in a line what made the counts change")
    lock = {
        "why": why,
        "platform": "cpu",
        "jaxlib": jaxlib.__version__,
        "steps": {kind: counts(kind) for kind in KINDS},
    }
    LOCK.write_text(json.dumps(lock, indent=1) + "\n")
    print(f"wrote {LOCK}")
