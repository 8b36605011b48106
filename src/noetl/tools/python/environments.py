"""Which interpreter runs the code of a task, and with which packages (`deps`)."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from noetl.kernel.event import Json
from noetl.tools.processes import kill_group, minimal_environment
from noetl.tools.values import BadField

__all__ = ["Environment", "environment_of"]

_INSTALL_LIMIT = 600.0
_LOCK_INTERVAL = 0.1
_COMPLETE = ".complete"
# What an installer may be told by the environment: where packages are, and how to get there.
_INSTALLER_VARIABLES = (
    "PIP_",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_",
)


class Environment(msgspec.Struct, frozen=True):
    """What two calls must agree in to share a process.

    The directory is among it because modules of a project, once imported, stay imported.
    """

    interpreter: str
    directory: str
    sys_path: tuple[str, ...] = ()


async def environment_of(deps: Json | None, directory: str, cache: Path) -> Environment:
    """The environment that a task asks for, made if it must be. Raises BadField."""
    if not deps:
        return Environment(sys.executable, directory)
    packages = _texts(deps, "packages")
    if packages and deps.get("venv_path"):
        raise BadField("deps: give packages or venv_path, not both")
    interpreter = sys.executable
    if deps.get("venv_path"):
        interpreter = _interpreter(Path(directory, str(deps["venv_path"])))
    elif packages:
        interpreter = await _with_packages(packages, directory, cache)
    return Environment(interpreter, directory, tuple(os.path.join(directory, p) for p in _texts(deps, "sys_path")))  # noqa: PTH118 - plain text, on the way of every call


def _texts(deps: Json, key: str) -> list[str]:
    value: Any = deps.get(key) or []
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise BadField(f"deps.{key} must be a list of texts")
    return texts


def _interpreter(venv: Path) -> str:
    found = venv / "bin" / "python"
    if not found.is_file():
        raise BadField(f"deps.venv_path: there is no {found}", kind="not_found", code="VENV_NOT_FOUND")
    return str(found)


async def _with_packages(packages: list[str], directory: str, cache: Path) -> str:
    """The interpreter of an environment with these packages, kept under what they are."""
    for package in packages:
        if package.startswith("-"):
            raise BadField(f"deps.packages: '{package}' is an option, not a package")
    key = hashlib.sha256("\0".join([sys.version, directory, *sorted(packages)]).encode()).hexdigest()[:32]
    venv = cache / key
    if not (venv / _COMPLETE).exists():
        await _make(venv, packages, directory)
    return _interpreter(venv)


async def _make(venv: Path, packages: list[str], directory: str) -> None:
    venv.parent.mkdir(parents=True, exist_ok=True)
    with (venv.parent / f"{venv.name}.lock").open("w") as lock:
        async with asyncio.timeout(_INSTALL_LIMIT):
            while not _locked(lock.fileno()):  # noqa: ASYNC110 - the holder may be another process
                await asyncio.sleep(_LOCK_INTERVAL)
            if (venv / _COMPLETE).exists():  # somebody else made it while we waited
                return
            shutil.rmtree(venv, ignore_errors=True)
            await _install([sys.executable, "-m", "venv", str(venv)], directory)
            pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            await _install([*pip, *packages], directory)
            (venv / _COMPLETE).touch()


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _install(command: list[str], directory: str) -> None:
    variables = {name: value for name, value in os.environ.items() if name.startswith(_INSTALLER_VARIABLES)}
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=directory,
        env={**minimal_environment(), **variables},
        start_new_session=True,
    )
    with _killed_if_left(process.pid):
        printed, _ = await process.communicate()
    if process.returncode:
        said = printed.decode("utf-8", "replace").strip()[-2000:]
        raise BadField(f"deps.packages could not be installed: {said}", kind="transform", code="DEPS_FAILED")


@contextmanager
def _killed_if_left(pid: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        kill_group(pid)
        raise
