"""The share that is due, or the rows of a table that are in a share, for the Makefile:

python tools/share.py rotating/6                  # 4/6
python tools/share.py rotating/6 architectures    # names of timm's architectures
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.share import parse


def main() -> int:
    """Print it."""
    share = parse(sys.argv[1])
    if sys.argv[2:] == ["architectures"]:
        from evidence.timm_sweep.peer import architectures

        print(*share.of([*architectures()]))
    else:
        print(share)
    return 0


if __name__ == "__main__":
    sys.exit(main())
