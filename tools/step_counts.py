"""Write down what compiled training steps consist of.

``tools/step_counts.py --why "REASON"`` compiles the step of each kind of block for CPU and rewrites
tests/vit_jax/step_counts.json; with ``--platform tpu`` that of ViT-B/16 for eight v5e chips (no TPU is
needed, but the extra [preflight]) and tests/vit_jax/tpu_counts.json. The tests beside the files fail
where a step has more of anything than its file allows.
"""

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # nothing runs

TESTS = {"cpu": "test_step_counts", "tpu": "test_tpu_counts"}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--platform", choices=TESTS, default="cpu")
    parser.add_argument("--why", required=True, help="one line: what made the counts change")
    options = parser.parse_args()
    if not (why := options.why.strip()):
        parser.error("--why is empty; say in a line what made the counts change")
    lock = import_module(f"tests.vit_jax.{TESTS[options.platform]}").LOCK
    lock.write(why)
    print(f"wrote {lock.path}")
