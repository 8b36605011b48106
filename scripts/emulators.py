"""Install an emulator of a cloud store that does not come as a Python package, and print where it is.

    python scripts/emulators.py azurite|fake-gcs-server

Azurite comes from npm, fake-gcs-server is built with Go; both go into build/emulators, once, whoever asks first.
Without npm or go, or when the installation fails, this says why and exits with 3.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EMULATORS = ROOT / "build" / "emulators"
GCS_SOURCE = ROOT / "tests" / "services" / "gcs"
AZURITE = "azurite@3.35.0"
SECONDS = 540
UNAVAILABLE = 3


class NotInstalled(Exception):
    """Why there is no such emulator here."""


def azurite(target: Path) -> Path:
    program = target / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        # Its own folder, and no scripts of packages: nothing of it is native.
        run("npm", "install", f"--prefix={target}", "--no-audit", "--no-fund", "--ignore-scripts", AZURITE)
    return program


def fake_gcs_server(target: Path) -> Path:
    program = target / "fake-gcs-server"
    if not program.exists():
        run("go", "build", "-mod=readonly", "-o", str(program), ".", cwd=GCS_SOURCE)
    return program


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


INSTALLERS: dict[str, Callable[[Path], Path]] = {"azurite": azurite, "fake-gcs-server": fake_gcs_server}


def install(name: str) -> Path:
    target = EMULATORS / f"{name}-{digest(name)}"
    target.mkdir(parents=True, exist_ok=True)
    with (EMULATORS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return INSTALLERS[name](target)


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in INSTALLERS:
        print(f"usage: emulators.py {'|'.join(INSTALLERS)}", file=sys.stderr)
        return 2
    try:
        print(install(sys.argv[1]))
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
