"""Where keychain entries of kind `secrets` come from: variables and files that the deployment has allowed.

A playbook may come from anywhere. It names secrets; which names there are is for whoever runs the worker to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from noetl.errors import InvalidInput, NotFound, Unavailable
from noetl.kernel.names.segments import show
from noetl.ports.credentials import Credential

__all__ = ["Environment", "Resolver", "SecretFiles", "Source", "with_environment"]

Resolver = Callable[[str], Awaitable[Credential]]
"""Finds a stored credential by its name. Raises NotFound."""


class Source(Protocol):
    """Secrets by the names that an entry's `map` gives."""

    async def read(self, name: str) -> str:
        """The secret. Raises NotFound, InvalidInput, Unavailable."""
        ...


ALLOWLIST = "NOETL_KEYCHAIN_ENV_VARS"
DIRECTORY = "NOETL_KEYCHAIN_FILES"
_DEFAULT_DIRECTORY = "/run/secrets"
_MAX_BYTES = 1024 * 1024


class Environment:
    """The variables that may be read: those that NOETL_KEYCHAIN_ENV_VARS names, separated by commas."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        allowed = {name.strip() for name in environ.get(ALLOWLIST, "").split(",")} - {""}
        self._values = {name: environ[name] for name in allowed if name in environ}
        self._allowed = allowed

    def __contains__(self, name: str) -> bool:
        return name in self._values

    async def read(self, name: str) -> str:
        """The value of a variable. Raises InvalidInput if it is not allowed, NotFound if it is not set."""
        if name not in self._allowed:
            raise InvalidInput(
                f"the variable {show(name)} is not allowed in a keychain", hint=f"add its name to {ALLOWLIST}"
            )
        if name not in self._values:
            raise NotFound(f"the variable {name} is not set")
        return self._values[name]


class SecretFiles:
    """A directory with one secret a file, as container platforms mount them; NOETL_KEYCHAIN_FILES says which."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._directory = Path(environ.get(DIRECTORY) or _DEFAULT_DIRECTORY)

    async def read(self, name: str) -> str:
        """The text of a file below the directory, without the line break at its end."""
        return await asyncio.to_thread(self._read, name)

    def _read(self, name: str) -> str:
        if not name or name.startswith("/") or "\0" in name or ".." in name.split("/"):
            raise InvalidInput(f"{show(name)} is not the name of a secret file", hint=f"name a file in {DIRECTORY}")
        try:
            root = self._directory.resolve(strict=True)
            # Mounted secrets are links within their directory; one that leads out of it is not followed.
            file = (root / name).resolve(strict=True)
            if not file.is_relative_to(root) or not file.is_file():
                raise InvalidInput(f"{show(name)} is not a file in {self._directory}")
            if file.stat().st_size > _MAX_BYTES:
                raise InvalidInput(f"the secret file {show(name)} has more than {_MAX_BYTES} bytes")
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise NotFound(f"there is no secret file {show(name)} in {self._directory}") from None
        except UnicodeDecodeError:
            raise InvalidInput(f"the secret file {show(name)} is not UTF-8 text") from None
        except OSError as error:
            raise Unavailable(f"cannot read the secret file {show(name)}: {error.strerror}") from None
        return text.removesuffix("\n").removesuffix("\r")


def with_environment(resolver: Resolver, environment: Environment) -> Resolver:
    """A resolver in which an allowed variable is a credential too: its value is the `secret` and the `token`."""

    async def resolve(name: str) -> Credential:
        if name not in environment:
            return await resolver(name)
        value = await environment.read(name)
        return Credential(name=name, type="secret", data={"secret": value, "token": value})

    return resolve
