#!/usr/bin/env bash
# Prints the newest Python that can run the newest JAX (3.13 or 3.12), or the one given where there is none.
# Usage: find_python.sh PYTHON
set -euo pipefail
for each in python3.13 "$HOME"/.pyenv/versions/3.13.*/bin/python python3.12 "$HOME"/.pyenv/versions/3.12.*/bin/python; do
    # a shim of pyenv is there for versions that are not chosen
    if "$each" -c "import ensurepip" 2>/dev/null; then
        echo "$each"
        exit
    fi
done
echo "$1"
