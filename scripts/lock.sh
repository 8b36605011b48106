#!/usr/bin/env bash
# Regenerates requirements/*.lock from pyproject.toml: versions and hashes for every platform, no addresses.
# Arguments go to the resolver, e.g. `scripts/lock.sh --upgrade` or `scripts/lock.sh --upgrade-package click`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv=.venv/bin/uv
[[ -x $uv ]] || uv=$(command -v uv) || {
    echo "lock: uv is not installed; run 'make setup' or install it with 'pip install uv'" >&2
    exit 1
}

compile() {
    local name=$1
    shift
    echo "lock: requirements/$name.lock"
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        --no-emit-index-url --no-emit-find-links --output-file "requirements/$name.lock" "$@" >/dev/null
}

compile runtime pyproject.toml "$@"
# The runtime lock binds the development one, so that what is tested is what is shipped.
compile dev pyproject.toml --all-extras --group dev --group docs --constraints requirements/runtime.lock "$@"
# What the images of deploy/Dockerfile hold.
compile container pyproject.toml --extra nats --constraints requirements/runtime.lock "$@"
compile container-spark pyproject.toml --extra nats --extra spark --constraints requirements/runtime.lock "$@"
compile setup --group setup "$@"

if grep -nE '://|^--|@ file' requirements/*.lock; then
    echo "lock: an address got into a lock file (above); it must hold versions and hashes only" >&2
    exit 1
fi
