"""Which files a lake has: a log of commits, each written once and never changed.

    _log/000000000001.json
    _log/000000000032.checkpoint.json

A commit exists when its file does, and the file appears whole or not at all: so a writer that is killed leaves files
that nobody knows, and of two writers that want the same number one is told that it was too late. A commit adds files
and may take others away; only what the log has added and not taken away is part of the lake. Commits of kind `append`
follow one another without a gap: the lake is a prefix of the ledger, every position once. A checkpoint holds the whole
list as of a commit, so that a lake with a long history opens as fast as a young one.
"""

from __future__ import annotations

import os
import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from noetl.errors import Conflict, Corruption, InvalidInput, NotFound
from noetl.kernel.time import format_time

__all__ = ["CHECKPOINT_EVERY", "Commit", "File", "Lake", "Snapshot", "create_whole", "sync_directory"]

CHECKPOINT_EVERY = 32
_COMMIT, _CHECKPOINT = "noetl.lake.commit/1", "noetl.lake.checkpoint/1"
_LOG = "_log"
T = TypeVar("T")


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file of events of one tenant, day and bucket. Positions between the first and the last may be in
    other files."""

    path: str
    """Relative to the lake."""
    tenant: str
    date: str
    bucket: int
    rows: int
    bytes: int
    sha256: str
    first_position: int
    last_position: int


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the lake. `last_position` is how far the lake goes with it, whatever its kind."""

    commit: int
    kind: Literal["append", "compact"]
    first_position: int
    last_position: int
    add: tuple[File, ...]
    remove: tuple[str, ...] = ()
    checksum_at_end: str
    """The checksum of the event at `last_position`, by which the ledger is recognised that the lake is a copy of."""
    committed_at: str
    schema: str = _COMMIT


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The lake as of a commit: what a reader works with, whatever is committed meanwhile."""

    commit: int = 0
    last_position: int = 0
    checksum_at_end: str | None = None
    committed_at: str | None = None
    files: tuple[File, ...] = ()
    schema: str = _CHECKPOINT


class Lake:
    """A lake in a directory. Opening it costs the last checkpoint and the few commits after it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self._known = Snapshot()
        self._files: dict[str, File] = {}

    def exists(self) -> bool:
        """Whether anything has been committed."""
        return self.snapshot().commit > 0

    def snapshot(self) -> Snapshot:
        """The lake as it is now. Raises Corruption for a log that does not hold together."""
        before = self._known.commit
        if before == 0:
            self._restore()
        while (commit := self._read_commit(self._known.commit + 1)) is not None:
            self._follow(commit)
        if self._known.commit != before:
            files = tuple(sorted(self._files.values(), key=lambda file: (file.first_position, file.path)))
            self._known = msgspec.structs.replace(self._known, files=files)
        return self._known

    def files(self, as_of: int | None = None) -> list[File]:
        """The files that hold the events up to a position, or all. Those of later positions may be in them, too."""
        return [file for file in self.snapshot().files if as_of is None or file.first_position <= as_of]

    def head(self) -> int:
        """The last position; 0 for a lake with nothing in it."""
        return self.snapshot().last_position

    def buckets(self) -> dict[int, list[File]]:
        """The files of each bucket that has any, in order of their first position."""
        found: dict[int, list[File]] = defaultdict(list)
        for file in self.files():
            found[file.bucket].append(file)
        return dict(sorted(found.items()))

    def commits(self) -> Iterator[Commit]:
        """All commits, oldest first."""
        for number in range(1, self.snapshot().commit + 1):
            commit = self._read_commit(number)
            if commit is None:
                raise self._torn(number, "it is not there, though later ones are")
            yield commit

    def place(self, file: File) -> Path:
        """Where a file is. Raises Corruption for a name that leads out of the lake."""
        place = (self.path / file.path).resolve()
        if not place.is_relative_to(self.path.resolve()):
            raise Corruption(f"{self.path}: the log names '{file.path}', which is not in the lake")
        return place

    def append(self, first: int, last: int, add: Sequence[File], *, checksum: str, now: int) -> Commit:
        """Commit the events of positions `first` to `last`.

        Raises Conflict if somebody else has committed meanwhile, or if the lake does not end right before `first`;
        InvalidInput if the files are not exactly those positions' events.
        """
        known = self._known
        if first != known.last_position + 1:
            raise Conflict(f"the lake ends at position {known.last_position}, and {first} does not follow it")
        if sum(file.rows for file in add) != last - first + 1 or any(
            file.first_position < first or file.last_position > last for file in add
        ):
            raise InvalidInput(f"the files do not hold the events of positions {first} to {last}, each once")
        return self._commit("append", first, last, add, (), checksum, now)

    def compact(self, add: Sequence[File], remove: Sequence[File], *, now: int) -> Commit:
        """Commit files in the place of others that hold the same events. Raises Conflict as `append` does."""
        gone = [file.path for file in remove if file.path not in self._files]
        if gone:
            raise Conflict(f"{gone[0]} is no part of the lake any more")
        if sum(file.rows for file in add) != sum(file.rows for file in remove):
            raise InvalidInput("the files hold other events than those whose place they take")
        known = self._known
        assert known.checksum_at_end is not None
        first = min((file.first_position for file in remove), default=known.last_position)
        paths = [file.path for file in remove]
        return self._commit("compact", first, known.last_position, add, paths, known.checksum_at_end, now)

    def _commit(
        self, kind: Any, first: int, last: int, add: Sequence[File], remove: Sequence[str], checksum: str, now: int
    ) -> Commit:
        commit = Commit(
            commit=self._known.commit + 1,
            kind=kind,
            first_position=first,
            last_position=last,
            add=tuple(add),
            remove=tuple(remove),
            checksum_at_end=checksum,
            committed_at=format_time(now),
        )
        if not create_whole(self._name(commit.commit), _written(commit)):
            raise Conflict(f"commit {commit.commit} of {self.path} was made by somebody else")
        known = self.snapshot()
        if known.commit // CHECKPOINT_EVERY > self._last_checkpoint() // CHECKPOINT_EVERY:
            create_whole(self._name(known.commit, checkpoint=True), _written(known))
        return commit

    # --- Reading the log ----------------------------------------------------------------------------------

    def _restore(self) -> None:
        number = self._last_checkpoint()
        if number == 0:
            return
        name = self._name(number, checkpoint=True)
        found = _read(name, Snapshot)
        if found is None or found.commit != number or found.schema != _CHECKPOINT:
            raise self._torn(number, "its checkpoint is not one")
        self._known = found
        self._files = {file.path: file for file in found.files}

    def _follow(self, commit: Commit) -> None:
        known = self._known
        expected = known.last_position + (1 if commit.kind == "append" else 0)
        if commit.kind == "append" and commit.first_position != expected:
            raise self._torn(commit.commit, f"it begins at position {commit.first_position}, not at {expected}")
        for path in commit.remove:
            if self._files.pop(path, None) is None:
                raise self._torn(commit.commit, f"it removes '{path}', which is no part of the lake")
        self._files |= {file.path: file for file in commit.add}
        self._known = Snapshot(
            commit=commit.commit,
            last_position=commit.last_position,
            checksum_at_end=commit.checksum_at_end,
            committed_at=commit.committed_at,
            files=known.files,
        )

    def _read_commit(self, number: int) -> Commit | None:
        found = _read(self._name(number), Commit)
        if found is not None and (found.commit != number or found.schema != _COMMIT):
            raise self._torn(number, f"it says that it is commit {found.commit} in the form {found.schema}")
        return found

    def _last_checkpoint(self) -> int:
        end = ".checkpoint.json"
        try:
            names = [path.name for path in (self.path / _LOG).iterdir()]
        except FileNotFoundError:
            return 0
        except NotADirectoryError:
            raise NotFound(f"{self.path} is not a directory", hint="correct lake.path") from None
        return max((int(name.removesuffix(end)) for name in names if name.endswith(end)), default=0)

    def _name(self, number: int, *, checkpoint: bool = False) -> Path:
        return self.path / _LOG / f"{number:012d}{'.checkpoint' if checkpoint else ''}.json"

    def _torn(self, number: int, what: str) -> Corruption:
        return Corruption(
            f"{self.path}: commit {number} is damaged: {what}", hint="delete the lake and run noetl lake sync"
        )


def _written(found: Commit | Snapshot) -> bytes:
    return msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise Corruption(
            f"{path} is not part of a lake's log: {error}", hint="delete the lake and run noetl lake sync"
        ) from None


def create_whole(path: Path, data: bytes) -> bool:
    """Make a file that is there whole or not at all; False if there is one already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    sync_directory(path.parent)
    return True


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
