"""Parts of facts that were made already: written once for a range of positions, and never changed.

    facts/v1/_log/000000000001.json
    facts/v1/<part>/<first>-<last>-<mark>-<number>.parquet

The log is of the kind that the lake has: a commit appears whole or not at all, its positions follow those of the commit
before it, and only files that it names exist. So whoever is killed leaves files that nobody knows, and of two who make
the same range one is too late. Everything here can be deleted and is made again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from noetl.data.bulk import Bounds
from noetl.data.lake.log import create_whole, sync_directory
from noetl.errors import Corruption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FACTS_VERSION", "FactCommit", "FactStore"]

FACTS_VERSION = 1
"""Raised when the same events would give other parts; those of another version are left alone and made anew."""
_SCHEMA = "noetl.facts.commit/1"
_LOG, _DRAFTS, _LOCK = "_log", "_drafts", ".lock"


class FactCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one range of positions."""

    commit: int
    first_position: int
    last_position: int
    last_ingest_time: str
    """The latest that the ledger took in an event of this range or of one before it."""
    files: dict[str, tuple[str, ...]]
    """By part, relative to the store."""
    schema: str = _SCHEMA


class FactStore:
    """The parts that are kept beside a lake."""

    def __init__(self, lake: Path) -> None:
        self.path = lake / "facts" / f"v{FACTS_VERSION}"

    def commits(self) -> list[FactCommit]:
        """All commits, oldest first. Raises Corruption for a log that does not hold together."""
        found: list[FactCommit] = []
        while (commit := self._read(len(found) + 1)) is not None:
            before = found[-1].last_position if found else 0
            if commit.commit != len(found) + 1 or commit.schema != _SCHEMA or commit.first_position != before + 1:
                raise self._torn(f"commit {len(found) + 1} does not follow position {before}")
            found.append(commit)
        return found

    def within(self, head: int, bounds: Bounds) -> list[FactCommit]:
        """The commits of which every event counts, up to the first of which some do not."""
        last = head if bounds.position is None else min(head, bounds.position)
        found: list[FactCommit] = []
        for commit in self.commits():
            if commit.last_position > last or (bounds.until is not None and commit.last_ingest_time > bounds.until):
                break
            found.append(commit)
        return found

    def places(self, commits: list[FactCommit], part: str) -> list[str]:
        """Where the files of a part are. Raises Corruption if one is gone."""
        places = [self.path / name for commit in commits for name in commit.files.get(part, ())]
        for place in places:
            if not place.is_file():
                raise self._torn(f"{place.name} is gone, though the log has it")
        return [str(place) for place in places]

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer of this machine until the end of the block, without what others have left behind."""
        self.path.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            shutil.rmtree(self.path / _DRAFTS, ignore_errors=True)
            self._forget_unknown()
            yield
        finally:
            os.close(handle)

    def write(
        self, number: int, first: int, last: int, parts: Mapping[str, DataFrame], *, until: str
    ) -> FactCommit | None:
        """Write the parts of a range and commit them; None if somebody else has made that commit meanwhile."""
        mark = secrets.token_hex(4)
        drafts = self.path / _DRAFTS / mark
        files: dict[str, tuple[str, ...]] = {}
        for name, frame in parts.items():
            frame.write.mode("overwrite").option("compression", "zstd").parquet(str(drafts / name))
            files[name] = tuple(self._settle(drafts / name, name, f"{first}-{last}-{mark}"))
        shutil.rmtree(drafts, ignore_errors=True)
        commit = FactCommit(
            commit=number, first_position=first, last_position=last, last_ingest_time=until, files=files
        )
        data = msgspec.json.format(msgspec.json.encode(commit), indent=1) + b"\n"
        return commit if create_whole(self._name(number), data) else None

    def _settle(self, drafts: Path, part: str, stem: str) -> Iterator[str]:
        """Give the files of a part their names, durable before anybody can know them."""
        target = self.path / part
        target.mkdir(exist_ok=True)
        for number, draft in enumerate(sorted(drafts.glob("part-*.parquet"))):
            with draft.open("rb") as file:
                os.fsync(file.fileno())
            name = f"{stem}-{number}.parquet"
            draft.rename(target / name)
            yield f"{part}/{name}"
        sync_directory(target)

    def _forget_unknown(self) -> None:
        known = {name for commit in self.commits() for names in commit.files.values() for name in names}
        for place in self.path.glob("*/*.parquet"):
            if str(place.relative_to(self.path)) not in known:
                place.unlink(missing_ok=True)

    def _read(self, number: int) -> FactCommit | None:
        place = self._name(number)
        try:
            return msgspec.json.decode(place.read_bytes(), type=FactCommit)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise self._torn(f"commit {number} cannot be read: {error}") from None

    def _name(self, number: int) -> Path:
        return self.path / _LOG / f"{number:012d}.json"

    def _torn(self, what: str) -> Corruption:
        return Corruption(f"{self.path}: {what}", hint=f"delete {self.path}: noetl lake facts makes it again")
