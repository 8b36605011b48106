"""Contexts: the servers a person works with, by name, and which one is meant when none is named.

They are kept in the user's own configuration. A token is never in it: a context says which environment variable or
which file has the token, and it is read when it is needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from noetl.errors import InvalidInput, InvalidSetting, NotFound, Unavailable

__all__ = ["LOCAL", "RUNTIMES", "Context", "Contexts", "contexts_file", "runtime_of"]

Runtime = Literal["auto", "distributed", "local"]

LOCAL = "local"
"""The name that stands for no server at all: the home of this machine."""
RUNTIMES = ("auto", "local", "distributed", "server")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PRIVATE = 0o600
_OTHERS = 0o077
_HEAD = "# The servers noetl knows; see noetl context --help. Tokens do not belong here.\n"


class Context(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A server, where its token is, and where playbooks run when it is the current context."""

    url: str
    runtime: Runtime = "auto"
    token_env: str | None = None
    token_file: str | None = None

    def token(self, name: str, environ: Mapping[str, str]) -> str | None:
        """The token, read now; None if the context has none. Raises InvalidInput if it is not where it should be."""
        change = f"noetl context add {name} --url {self.url} --replace --token-env VAR, or --token-file FILE"
        if self.token_env is not None:
            found = environ.get(self.token_env, "").strip()
            if not found:
                raise InvalidInput(
                    f"context '{name}' takes its token from {self.token_env}, which is not set",
                    hint=f"export {self.token_env}=..., or {change}",
                )
            return found
        if self.token_file is None:
            return None
        file = Path(self.token_file).expanduser()
        try:
            mode, found = file.stat().st_mode, file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise InvalidInput(f"context '{name}': cannot read the token in {file}: {why}", hint=change) from None
        if mode & _OTHERS:
            raise InvalidInput(f"context '{name}': {file} can be read by others", hint=f"chmod 600 {file}")
        if not found:
            raise InvalidInput(f"context '{name}': {file} is empty", hint=change)
        return found


class Contexts(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All of them, and the current one."""

    current: str | None = None
    contexts: dict[str, Context] = {}

    @staticmethod
    def load(file: Path) -> Contexts:
        """What the file says; a file that is not there says nothing. Raises InvalidSetting."""
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            return Contexts()
        except OSError as error:
            raise InvalidSetting(f"{file} cannot be read: {error.strerror}", hint="check its permissions") from None
        import tomllib  # not before there is something to read: every run looks here

        try:
            found = msgspec.convert(tomllib.loads(data.decode()), Contexts)
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise InvalidSetting(f"{file} does not hold contexts: {error}", hint="mend it, or delete it") from None
        if found.current is not None and found.current not in found.contexts:
            raise InvalidSetting(
                f"{file}: the current context '{found.current}' is not in it", hint=f"noetl context use {LOCAL}"
            )
        return found

    def find(self, name: str) -> Context:
        """A context by its name. Raises NotFound."""
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "there are none yet"
            raise NotFound(f"there is no context '{name}'", hint=f"noetl context add {name} --url URL; known: {known}")
        return self.contexts[name]

    def add(self, name: str, context: Context, *, replace: bool) -> None:
        """Add a context; the first one becomes the current one. Raises InvalidInput for what cannot be right."""
        if name == LOCAL or not _NAME.fullmatch(name):
            raise InvalidInput(
                f"'{name}' cannot name a context",
                hint=f"letters, digits, '.', '_' and '-', at most 64; '{LOCAL}' stands for this machine",
            )
        if name in self.contexts and not replace:
            raise InvalidInput(f"there is a context '{name}' already", hint="add --replace to change it")
        _check(context)
        if not self.contexts:
            self.current = name
        self.contexts[name] = context

    def save(self, file: Path) -> None:
        """Write them whole or not at all, for nobody else to read."""
        import tempfile

        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as writing:
                    os.fchmod(writing.fileno(), _PRIVATE)
                    writing.write(self._text())
                    writing.flush()
                    os.fsync(writing.fileno())
                Path(draft).replace(file)
            except BaseException:
                Path(draft).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise Unavailable(f"cannot write {file}: {error.strerror}", hint="check the disk and permissions") from None

    def _text(self) -> str:
        lines = [_HEAD]
        if self.current is not None:
            lines.append(f"current = {_quoted(self.current)}\n")
        for name, context in sorted(self.contexts.items()):
            fields: dict[str, Any] = msgspec.to_builtins(context)
            lines.append(f"\n[contexts.{_quoted(name)}]\n")
            lines += [f"{key} = {_quoted(value)}\n" for key, value in fields.items()]
        return "".join(lines)


def contexts_file(environ: Mapping[str, str]) -> Path:
    """Where they are kept: below `XDG_CONFIG_HOME`, else below `~/.config`."""
    base = environ.get("XDG_CONFIG_HOME", "")
    user = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    return (Path(base) if base.startswith("/") else user / ".config") / "noetl" / "contexts.toml"


def runtime_of(text: str) -> Runtime:
    """A runtime as a person writes it: `server` is the same as `distributed`."""
    runtimes: dict[str, Runtime] = {
        "auto": "auto", "local": "local", "distributed": "distributed", "server": "distributed",
    }  # fmt: skip
    return runtimes[text]


def _check(context: Context) -> None:
    parts = urlsplit(context.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or _CONTROL.search(context.url):
        raise InvalidInput(f"'{context.url}' is not the address of a server", hint="write http://HOST:8082")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidInput(
            "a server's address has no user, password or query in it", hint="give the token with --token-env VAR"
        )
    if context.token_env is not None and not _VARIABLE.fullmatch(context.token_env):
        raise InvalidInput(
            "--token-env takes the name of a variable, not a token",
            hint="export NOETL_TOKEN, then --token-env NOETL_TOKEN",
        )
    if context.token_file is not None and _CONTROL.search(context.token_file):
        raise InvalidInput("--token-file takes the name of a file", hint="write it without control characters")


def _quoted(text: str) -> str:
    """A TOML string. Control characters were refused before, so JSON's escapes are TOML's as well."""
    return msgspec.json.encode(text).decode()
