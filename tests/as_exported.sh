#!/usr/bin/env bash
# Tests as people have their machines: a checkout that cannot be written to, in a path with a space, and variables
# that they export. Who runs this as root runs them as nobody, or without root's rights over files.
# Usage: as_exported.sh PYTHON [PYTEST ARGUMENT ...]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
shift
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder" && rm -rf "$folder"' EXIT
checkout="$folder/a checkout"
mkdir "$checkout"
git -C "$here" archive HEAD | tar -x -C "$checkout"
mkdir -m 1777 "$folder/tmp"
chmod 755 "$folder"
chmod -R a-w,a+rX "$checkout"
as=()
if [ "$(id -u)" = 0 ]; then
    as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    if ! "${as[@]}" env "$python" -c "" 2> /dev/null; then # such as one below /root
        echo "nobody may not run $python: the tests run as root without its right to write everywhere"
        as=(setpriv --bounding-set -dac_override,-dac_read_search)
    fi
fi
cd "$checkout"
"${as[@]}" env \
    HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_HOME="$folder/tmp/hub" JAX_PLATFORMS=cpu JAX_ENABLE_X64=1 \
    XLA_FLAGS=--xla_force_host_platform_device_count=2 NO_COLOR=1 COLUMNS=80 LANG=C LC_ALL=C TZ=Pacific/Kiritimati \
    PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$checkout" HOME="$folder/tmp" TMPDIR="$folder/tmp" \
    "$python" -m pytest -p no:cacheprovider "$@"
