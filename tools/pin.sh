#!/usr/bin/env bash
# Writes requirements/*.txt anew: newest versions that are at least a week old, for Python 3.11 and later, with hashes and
# without any registry's address. Needs `uv` on the PATH (or UV=/path/to/uv).
set -euo pipefail
cd "$(dirname "$0")/.."
pin() {
    "${UV:-uv}" pip compile --quiet --universal --python-version 3.11 --exclude-newer P7D --generate-hashes \
        --no-header --no-annotate "$@"
}
pin pyproject.toml --output-file requirements/runtime.txt
for extra in test lint; do
    pin pyproject.toml --extra "$extra" --constraint requirements/runtime.txt --output-file "requirements/$extra.txt"
done
pin requirements/build.in --output-file requirements/build.txt
pin requirements/docs.in --constraint requirements/test.txt --constraint requirements/lint.txt \
    --output-file requirements/docs.txt
if grep --line-number --extended-regexp '://|^--(index|extra|find)' requirements/*.txt; then
    echo "requirements/*.txt must not hold an address" >&2
    exit 1
fi
