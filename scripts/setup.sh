#!/usr/bin/env bash
# Makes .venv ready for work: Python, the locked packages, NoETL itself, and Java for the data stages.
# Safe to run again at any time; when nothing has changed it returns at once.
#
#   PYTHON=python3.12 scripts/setup.sh    use this interpreter
#   NOETL_SKIP_JAVA=1 scripts/setup.sh    do not look for Java
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VENV=.venv
readonly STAMP=$VENV/noetl-setup.sha256
readonly JAVA_NEEDED=17

say() { echo "setup: $*"; }
fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }
is_root() { [[ $(id -u) -eq 0 ]]; }

digest() {
    # The directory is part of it: a virtual environment that was copied elsewhere has wrong paths inside.
    {
        pwd
        cat pyproject.toml requirements/*.lock scripts/setup.sh
    } | if have sha256sum; then sha256sum; else shasum -a 256; fi | cut -d' ' -f1
}

apt_install() {
    { have apt-get && is_root; } || return 1
    say "installing the Debian package(s) $*"
    local log
    log=$(mktemp)
    if { DEBIAN_FRONTEND=noninteractive apt-get update -qq \
        && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends "$@"; } >"$log" 2>&1; then
        rm -f "$log"
    else
        tail -n 5 "$log" >&2
        rm -f "$log"
        return 1
    fi
}

is_suitable_python() {
    "$1" -c 'import sys, sqlite3, ssl; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.13 python3.12 python3.11 python3; do
        if have "$candidate" && is_suitable_python "$candidate"; then
            # The interpreter itself, not a shim that may mean another one tomorrow.
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
        [[ $candidate != "${PYTHON:-}" ]] || return 1
    done
    return 1
}

need_python() {
    find_python && return
    [[ -z ${PYTHON:-} ]] || fail "PYTHON=$PYTHON is not a Python of at least 3.11 with sqlite3 and ssl"
    apt_install python3 python3-venv >&2 && find_python && return
    fail "no Python of at least 3.11 was found" \
        "install one and run this again; on Debian 12 or later: sudo apt-get install python3 python3-venv"
}

is_venv_usable() {
    [[ -z ${PYTHON:-} ]] && is_suitable_python "$VENV/bin/python" && grep -qF "$PWD/$VENV" "$VENV/bin/activate"
}

make_venv() {
    local python
    ! is_venv_usable || return 0
    python=$(need_python)
    rm -rf "$VENV"
    say "making $VENV with $("$python" -V)"
    if have uv; then
        uv venv --quiet --no-project --python "$python" "$VENV"
        return
    fi
    if ! "$python" -c 'import ensurepip' >/dev/null 2>&1; then
        apt_install python3-venv || fail "this Python cannot make a virtual environment (no ensurepip)" \
            "install it and run this again; on Debian: sudo apt-get install python3-venv"
    fi
    "$python" -m venv "$VENV"
}

find_uv() {
    if have uv; then
        command -v uv
        return
    fi
    if [[ ! -x $VENV/bin/uv ]]; then
        say "fetching uv" >&2
        "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
            --requirement requirements/setup.lock >&2
    fi
    echo "$VENV/bin/uv"
}

install_packages() {
    local uv locks=(requirements/dev.lock)
    uv=$(find_uv)
    [[ $uv != "$VENV"/* ]] || locks+=(requirements/setup.lock)
    say "installing the locked packages"
    # Byte code is made here and not left to the first import, because with PYTHONDONTWRITEBYTECODE set it
    # would never be made, and every command would start at half the speed.
    "$uv" pip sync --quiet --python "$VENV/bin/python" --require-hashes --compile-bytecode "${locks[@]}"
    "$uv" pip install --quiet --python "$VENV/bin/python" --no-deps --no-build-isolation --editable .
    "$VENV/bin/python" -m compileall -q src
}

has_java() {
    local java=java version
    [[ -z ${JAVA_HOME:-} ]] || java=$JAVA_HOME/bin/java
    have "$java" || return 1
    version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
    [[ ${version:-0} -ge $JAVA_NEEDED ]]
}

need_java() {
    [[ -z ${NOETL_SKIP_JAVA:-} ]] || return 0
    has_java || apt_install default-jre-headless || apt_install "openjdk-$JAVA_NEEDED-jre-headless" || true
    has_java || {
        say "Java $JAVA_NEEDED or later was not found. Only Spark data stages need it; everything else works without."
        say "  to add it on Debian: sudo apt-get install default-jre-headless"
    }
}

main() {
    local wanted
    wanted=$(digest)
    if [[ -z ${PYTHON:-} && -x $VENV/bin/python && -f $STAMP && $(<"$STAMP") == "$wanted" ]]; then
        return
    fi
    make_venv
    install_packages
    need_java
    echo "$wanted" >"$STAMP"
    say "ready"
}

main
