"""What a worker that keeps a data stage, and the server that writes its log, say to each other."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.kernel.event import Json
from noetl.runtime.remote.wire import Asked
from noetl.runtime.stages.base import Heed

__all__ = ["AppendRequest", "Appended", "CalledOrNot", "Heeded", "LogPage", "LogRequest", "RowCallRequest"]


class AppendRequest(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events of the stage, or of its execution's telemetry."""

    to: Literal["stage", "telemetry"]
    drafts: list[Json]
    expected_version: int | None = None


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """They are written, and have become these."""

    events: list[Json]


class LogRequest(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events of a stage: its own, or one of which it reads the outputs."""

    of_execution: int
    of_stage: int
    after_version: int = 0
    limit: int = 1000


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some events with their positions."""

    events: list[tuple[int, Json]]


class Heeded(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the stage is to go on."""

    heed: Heed


class RowCallRequest(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row calls a playbook."""

    call: Json


class CalledOrNot(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it, unless it `is_pending`: then it is asked for again."""

    is_pending: bool = False
    result: Any = None
    error: Json | None = None
