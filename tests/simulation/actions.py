"""What can happen in a simulated run.

A run is a list of these and nothing else: every choice that chance made is written down in it, so the
list can be saved, replayed and cut down. Numbers that point at something (a writer, a message, a root)
are taken modulo what is there, so that a list still means something after some of it was removed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

__all__ = [
    "Action", "AppendFault", "Crash", "Deliver", "Doctor", "Format", "Group", "Intrude", "Open", "Probe",
    "Project", "Publish", "Race", "Redeliver", "Replay", "Resave", "Restart", "Snapshot", "Tamper",
    "TamperKind", "Tick", "Torn", "Transfer", "Verify", "Write", "load", "save",
]  # fmt: skip

AppendFault = Literal["none", "crash_before", "crash_inside", "crash_after", "lost_ack", "duplicate", "delay"]
Format = Literal["direct", "jsonl", "feather"]
TamperKind = Literal["flip", "delete", "swap", "cut", "drop_stream", "forge", "row"]


class _Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Something that happens at one moment of a run."""


class Open(_Action, frozen=True, kw_only=True):
    """A new root appears, with the script that its writers follow."""

    number: int
    kind: Literal["execution", "tenant", "subscription"] = "execution"
    steps: int = 1
    frames: tuple[tuple[int, ...], ...] = ()  # for each stage, how many attempts each of its frames takes
    own_keys: bool = False  # rivals tell different facts under different keys, instead of the same under one


class Write(_Action, frozen=True, kw_only=True):
    """A writer decides on what it knows, and appends. With a lag it first reads again, that far behind."""

    writer: int
    fault: AppendFault = "none"
    lag: int | None = None


class Group(_Action, frozen=True, kw_only=True):
    """Appends of several writers reach the ledger at once and are committed together."""

    writers: tuple[int, ...]
    broken: int | None = None  # the append that fails after it has written, and must take nothing with it


class Redeliver(_Action, frozen=True, kw_only=True):
    """An append that was sent once is sent again, much later."""

    message: int


class Deliver(_Action, frozen=True, kw_only=True):
    """An append that the network had kept back arrives."""

    message: int


class Probe(_Action, frozen=True, kw_only=True):
    """An append that must be refused: half of it there already, an old key on new content, a bad draft."""

    message: int
    how: Literal["partial", "altered", "spoiled"]


class Intrude(_Action, frozen=True, kw_only=True):
    """A straggler writes to a stage, which may have been closed."""

    stage: int
    mark: int


class Tick(_Action, frozen=True, kw_only=True):
    """The clock moves; backwards when negative."""

    milliseconds: int


class Crash(_Action, frozen=True, kw_only=True):
    """Every process is killed. What they had in memory is gone."""


class Restart(_Action, frozen=True, kw_only=True):
    """Everything is shut down properly and started again."""


class Project(_Action, frozen=True, kw_only=True):
    """The projector does some pages of work; it may be killed before or after one of its saves."""

    page: int
    pages: int
    crash: Literal["", "before", "after"] = ""
    at_save: int = 0


class Race(_Action, frozen=True, kw_only=True):
    """A writer and a second projector work while the first is at its first load or its first save."""

    at: Literal["load", "save"]
    writer: int
    page: int
    other_page: int
    other_pages: int


class Resave(_Action, frozen=True, kw_only=True):
    """Rows that were saved once arrive at the store again, late."""

    message: int


class Snapshot(_Action, frozen=True, kw_only=True):
    """The state of a root is put down."""

    root: int


class Doctor(_Action, frozen=True, kw_only=True):
    """The newest snapshot of a root is damaged, or turns out to have been made under other rules."""

    root: int
    how: Literal["garbage", "rows", "digest", "fold", "forged"]


class Replay(_Action, frozen=True, kw_only=True):
    """A root is replayed up to somewhere, with and without snapshots."""

    root: int
    by: Literal["position", "time", "event"]
    at: float


class Verify(_Action, frozen=True, kw_only=True):
    """A root is verified while the run goes on, perhaps with a writer and the projector at work in between."""

    root: int
    writer: int | None = None


class Publish(_Action, frozen=True, kw_only=True):
    """A publisher claims some rows of the outbox and tells what became of them, or dies without a word."""

    owner: int
    limit: int
    how: Literal["published", "failed", "died", "some"]


class Torn(_Action, frozen=True, kw_only=True):
    """Power fails while a file is being written: on a copy, its end is missing."""

    file: Literal["db", "wal"]
    at: float


class Tamper(_Action, frozen=True, kw_only=True):
    """Somebody changes a copy of the storage. The verifier must see it and say where."""

    kind: TamperKind
    pick: int


class Transfer(_Action, frozen=True, kw_only=True):
    """Everything is exported and imported into a fresh ledger of the other kind."""

    format: Format
    smuggle: Literal["payload", "chain", "gap", "broken"]
    pick: int


Action = (
    Open | Write | Group | Redeliver | Deliver | Probe | Intrude | Tick | Crash | Restart | Project | Race | Resave
    | Snapshot | Doctor | Replay | Verify | Publish | Torn | Tamper | Transfer
)  # fmt: skip

_decoder = msgspec.json.Decoder(list[Action])


def save(actions: list[Action], path: Path) -> Path:
    """Write an action file, one action a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = b",\n".join(msgspec.json.encode(action) for action in actions)
    path.write_bytes(b"[\n" + lines + b"\n]\n")
    return path


def load(path: Path) -> list[Action]:
    """Read an action file."""
    return _decoder.decode(path.read_bytes())
