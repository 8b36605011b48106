"""Files by path, directory, glob or address: found, checked on this side, and read by Spark where it can."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from noetl.data.copies import Copies, copy_objects
from noetl.data.sources.formats import READERS, is_native, schema_of
from noetl.data.sources.reading import CHOICES, Frame, Reading, choices_of
from noetl.data.sources.staging import stage
from noetl.data.stage.files import FileForm, drift, find_files, form_of, read_batches
from noetl.errors import InvalidInput, NotFound
from noetl.payloads.blocking import in_thread
from noetl.payloads.resolver import scheme_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["open_files"]


async def open_files(name: str, said: str | None, options: dict[str, Any], reading: Reading) -> Frame:
    """The rows of files. `said` is their form, where their names do not say it."""
    choices = choices_of(options)
    try:
        found, base = await _found(name, reading)
    except NotFound as problem:
        if choices["on_missing"] != "skip":
            raise
        reading.skipped.append(problem.message)
        return _nothing(options)
    checking = _Checking(options, choices, reading)
    for path in found:
        await in_thread(checking.add, path, form_of(path.name, said))
    if not checking.groups:
        return _nothing(options)
    return checking.frame(base)


async def _found(name: str, reading: Reading) -> Copies:
    """The files, and the directory below which `column=value` directories are columns."""
    if scheme_of(name) not in ("", "file"):
        return await copy_objects(name, reading.resolver, reading.caller(), reading.place("objects"))
    directory = reading.call.directory
    path = unquote(urlsplit(name).path) if scheme_of(name) == "file" else name
    base = (directory / path).absolute()
    return Copies(await in_thread(find_files, path, directory), base if base.is_dir() else None)


class _Checking:
    """Files one after the other: the first decides on the columns, and what is left out is noted."""

    def __init__(self, options: dict[str, Any], choices: dict[str, str], reading: Reading) -> None:
        self._own = {name: value for name, value in options.items() if name not in (*CHOICES, "path")}
        self._choices = choices
        self._reading = reading
        self._first: pa.Schema | None = None
        self._staged: Path | None = None
        self.groups: dict[tuple[FileForm, Any], list[Path]] = {}

    def add(self, path: Path, form: FileForm) -> None:
        """Take a file, or note why not. Raises InvalidInput."""
        try:
            schema = schema_of(path, form, self._own)
        except InvalidInput as error:
            if self._choices["on_error"] != "skip":
                raise InvalidInput(error.message, hint="repair or remove it, or say on_error: skip") from None
            self._reading.skipped.append(error.message)
            return
        problem = drift(self._first, schema, path)
        if problem is not None:
            if self._choices["on_drift"] != "skip":
                raise InvalidInput(problem, hint="make the files alike, or say on_drift: skip")
            self._reading.skipped.append(problem)
            return
        self._first = self._first or schema
        if not is_native(path, form):
            path, form = self._as_parquet(path, form), "parquet"
        key = None if schema is None else schema.remove_metadata()
        self.groups.setdefault((form, key), []).append(path)

    def _as_parquet(self, path: Path, form: FileForm) -> Path:
        if self._staged is None:
            self._staged = self._reading.place("staged")
        target = self._staged / f"{len(list(self._staged.iterdir())):06d}.parquet"
        stage(read_batches(path, form, self._own), target)
        return target

    def frame(self, base: Path | None) -> Frame:
        """All files together; groups with other types of the same columns are made one."""
        own, staged, groups = self._own, self._staged, list(self.groups.items())

        def made(session: SparkSession) -> DataFrame:
            frames = []
            for (form, schema), paths in groups:
                below = None if staged in paths[0].parents else base
                frames.append(READERS[form](session, paths, schema, own, below))
            return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)

        return made


def _nothing(options: dict[str, Any]) -> Frame:
    """No rows; with `schema`, of these columns."""

    def make(session: SparkSession) -> DataFrame:
        from pyspark.sql.types import StructType

        said = options.get("schema")
        return session.createDataFrame([], str(said) if said else StructType([]))

    return make
