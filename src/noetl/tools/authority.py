"""What an execution may use: recorded when it starts, inherited by what it calls, checked before every use."""

from __future__ import annotations

import msgspec

from noetl.errors import Forbidden, InvalidInput
from noetl.kernel.event import Json

__all__ = ["EVERYTHING", "Authority"]

_ALL = "*"
_PARTS = ("credentials", "tool_kinds", "grants")


class Authority(msgspec.Struct, frozen=True, kw_only=True):
    """Names that may be used; None stands for all that the tenant has."""

    credentials: tuple[str, ...] | None = None
    tool_kinds: tuple[str, ...] | None = None
    grants: tuple[str, ...] | None = None

    @classmethod
    def read(cls, said: Json | None) -> Authority:
        """What an event or a request says. A part that it does not name is not limited. Raises InvalidInput."""
        if not said:
            return EVERYTHING
        if unknown := sorted(said.keys() - set(_PARTS)):
            raise InvalidInput(f"authority has no '{unknown[0]}'", hint=f"it consists of {', '.join(_PARTS)}")
        return cls(**{part: _names(part, said[part]) for part in _PARTS if part in said})

    def recorded(self) -> Json:
        """The same as an event holds it."""
        return {part: _ALL if (names := getattr(self, part)) is None else list(names) for part in _PARTS}

    def check_tool(self, kind: str) -> None:
        """Raise Forbidden unless tasks of this kind may run."""
        if self.tool_kinds is not None and kind not in self.tool_kinds:
            raise _refused(f"tasks of kind '{kind}'", "tool_kinds", self.tool_kinds)

    def check_credential(self, name: str) -> None:
        """Raise Forbidden unless this credential may be used."""
        if self.credentials is not None and name not in self.credentials:
            raise _refused(f"the credential '{name}'", "credentials", self.credentials)


EVERYTHING = Authority()


def _names(part: str, value: object) -> tuple[str, ...] | None:
    if value is None or value == _ALL:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise InvalidInput(f"authority.{part} is not a list of names", hint=f'{part}: ["name"], or "{_ALL}" for all')
    return tuple(value)


def _refused(what: str, part: str, allowed: tuple[str, ...]) -> Forbidden:
    listed = ", ".join(allowed) or "none"
    return Forbidden(
        f"this execution is not authorised to use {what}",
        hint=f"start it with an authority whose {part} include it; now they are: {listed}",
    )
