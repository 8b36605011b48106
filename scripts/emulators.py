"""Install an emulator of a cloud store that does not come as a Python package, and print where it is.

    python scripts/emulators.py azurite|fake-gcs-server|all

Azurite comes from npm, fake-gcs-server is built with Go; both go into build/emulators, once, whoever asks first.
Without npm or go, or when the installation fails, this says why and exits with 3. `all` is for setting up: it tries
each, and what fails is not tried again by those who ask for it within the hour.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EMULATORS = ROOT / "build" / "emulators"
GCS_SOURCE = ROOT / "tests" / "services" / "gcs"
AZURITE = "azurite@3.35.0"
SECONDS = 540
PATIENCE = 3600
UNAVAILABLE = 3


class NotInstalled(Exception):
    """Why there is no such emulator here."""


def azurite(target: Path) -> None:
    # Its own folder, and no scripts of packages: nothing of it is native.
    run("npm", "install", f"--prefix={target}", "--no-audit", "--no-fund", "--ignore-scripts", AZURITE)


def fake_gcs_server(target: Path) -> None:
    run("go", "build", "-mod=readonly", "-o", str(target / "fake-gcs-server"), ".", cwd=GCS_SOURCE)


def run(program: str, *arguments: str, cwd: Path = ROOT) -> None:
    if shutil.which(program) is None:
        raise NotInstalled(f"{program} is not installed")
    try:
        done = subprocess.run(
            [program, *arguments], cwd=cwd, capture_output=True, text=True, timeout=SECONDS, check=False,
            env={**os.environ, "CGO_ENABLED": "0"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{program} {arguments[0]} took longer than {SECONDS} s") from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise NotInstalled(f"{program} {arguments[0]} failed: {lines[-1][:200]}")


def digest(name: str) -> str:
    """What the emulator is made from, so that a change of it is installed anew."""
    sources = [GCS_SOURCE / file for file in ("main.go", "go.mod", "go.sum")] if name == "fake-gcs-server" else []
    return hashlib.sha256(b"\0".join([AZURITE.encode(), *(path.read_bytes() for path in sources)])).hexdigest()[:12]


INSTALLERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "azurite": (azurite, "node_modules/.bin/azurite-blob"),
    "fake-gcs-server": (fake_gcs_server, "fake-gcs-server"),
}


def install(name: str) -> Path:
    """The program, which is there as a whole or not at all, whoever was interrupted before."""
    put, program = INSTALLERS[name]
    target, scratch = EMULATORS / f"{name}-{digest(name)}", EMULATORS / f"{name}.new"
    EMULATORS.mkdir(parents=True, exist_ok=True)
    with (EMULATORS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            refuse_what_has_failed(name)
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            try:
                put(scratch)
            except NotInstalled as error:
                failure_of(name).write_text(str(error), encoding="utf-8")
                raise
            scratch.rename(target)
    return target / program


def failure_of(name: str) -> Path:
    return EMULATORS / f"{name}-{digest(name)}.failed"


def refuse_what_has_failed(name: str) -> None:
    failure = failure_of(name)
    if failure.exists() and time.time() - failure.stat().st_mtime < PATIENCE:
        raise NotInstalled(failure.read_text(encoding="utf-8"))


def install_all() -> int:
    """Each of them; one that is not to be had leaves only its own tests out."""
    for name in INSTALLERS:
        failure_of(name).unlink(missing_ok=True)
        try:
            install(name)
        except NotInstalled as error:
            print(f"emulators: no {name}: {error}", file=sys.stderr)
    return 0


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in (*INSTALLERS, "all"):
        print(f"usage: emulators.py {'|'.join(INSTALLERS)}|all", file=sys.stderr)
        return 2
    if sys.argv[1] == "all":
        return install_all()
    try:
        print(install(sys.argv[1]))
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
