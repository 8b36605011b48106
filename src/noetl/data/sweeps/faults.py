"""Errors of ours that happen on an executor: Spark knows only text, so they travel as such and are themselves again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from noetl.data.session import explain
from noetl.errors import (
    AccessRefused,
    Conflict,
    Corruption,
    IntegrityMismatch,
    InvalidInput,
    InvalidSetting,
    NoetlError,
    NotFound,
    StorageFull,
    Unavailable,
)

__all__ = ["brought", "carried"]

_MARK = "noetl-fault:"
_BRANCHES: tuple[type[NoetlError], ...] = (
    IntegrityMismatch, Corruption, AccessRefused, StorageFull, Unavailable, NotFound, InvalidSetting, InvalidInput,
    Conflict, NoetlError,
)  # fmt: skip
"""The first that an error is one of is what arrives: whoever handles it goes by the branch."""
_CARRIED = re.compile(rf"{_MARK}(\{{.*?\}}):end")


class _Fault(msgspec.Struct, frozen=True):
    name: str
    message: str
    hint: str | None = None


class _CarriedError(Exception):
    """An error of ours, as text."""


@contextmanager
def carried() -> Iterator[None]:
    """Let what is raised in the block be read where the job was started. Runs on executors."""
    try:
        yield
    except NoetlError as error:
        branch = next(one for one in _BRANCHES if isinstance(error, one))
        fault = _Fault(branch.__name__, error.message, error.hint)
        raise _CarriedError(f"{_MARK}{msgspec.json.encode(fault).decode()}:end") from error


@contextmanager
def brought() -> Iterator[None]:
    """Raise what an executor has raised; Unavailable for what has gone wrong with Spark itself."""
    try:
        yield
    except NoetlError:
        raise
    except Exception as error:
        message, detail = explain(error)
        found = _CARRIED.search(detail) or _CARRIED.search(message)
        if found is None:
            raise Unavailable(f"the Spark job of the sweep failed: {message}", hint="run it without --spark") from error
        fault = msgspec.json.decode(found[1], type=_Fault)
        branch = next(one for one in _BRANCHES if one.__name__ == fault.name)
        raise branch(fault.message, hint=fault.hint) from error
