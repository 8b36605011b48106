"""Files in a directory: Spark writes them beside it, and they are moved there when all of them are good.

A directory that is overwritten is exchanged as a whole: readers see the old files or the new ones. Files that are
appended carry the mark of their task, so a second delivery takes the place of the first.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.data.sinks.target import Target
from noetl.data.sinks.written import FileWritten, measured, part_files
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["commit", "is_taken", "staging_of", "write"]

_ENDINGS = {"parquet": ".parquet", "csv": ".csv", "json": ".jsonl", "orc": ".orc"}


def staging_of(target: Target) -> Path:
    """Where the files are before they are good: beside the target, hidden, on the same disk."""
    return target.path.with_name(f".{target.path.name}.{target.mark}")


def is_taken(target: Target) -> bool:
    """Whether others have files there and `mode` is to leave them. Raises InvalidInput where that is an error."""
    _restore(target)
    if target.path.exists() and not target.path.is_dir():
        raise InvalidInput(f"output.path: {target.path} is a file", hint="name a directory")
    if target.mode not in ("error", "ignore") or not target.path.is_dir():
        return False
    theirs = [path for path in part_files(target.path) if not _is_ours(path, target)]
    if theirs and target.mode == "error":
        raise InvalidInput(f"output: {target.path} has files already", hint="choose mode append, overwrite or ignore")
    return bool(theirs)


def write(frame: DataFrame, target: Target, folder: Path) -> list[FileWritten]:
    """Let Spark write the files to a directory of ours, and measure them."""
    shutil.rmtree(folder, ignore_errors=True)  # what a killed attempt has left
    writer = frame.write.mode("overwrite")
    if target.partition_by:
        writer = writer.partitionBy(*target.partition_by)
    if target.form == "csv":
        header = target.options.get("header", True) not in (False, "false")
        # Quotes within quotes are doubled, as everybody else writes and reads them.
        writer = writer.options(header=header, sep=str(target.options.get("delimiter") or ","), escape='"')
    writer.format(target.form).save(str(folder))
    _name(folder, target)
    return measured(folder, target.form)  # type: ignore[arg-type]  # one of the forms of files


def commit(target: Target) -> None:
    """Move the files of the staging directory to where they belong."""
    staging = staging_of(target)
    _settle(staging)
    if target.mode == "append":
        _append(staging, target)
        return
    aside = _aside(target)
    target.path.parent.mkdir(parents=True, exist_ok=True)
    if target.path.exists():
        target.path.rename(aside)
    staging.rename(target.path)
    shutil.rmtree(aside, ignore_errors=True)


def _settle(staging: Path) -> None:
    """What is said to be written must be there after the power has failed, too."""
    for path in part_files(staging):
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _append(staging: Path, target: Target) -> None:
    target.path.mkdir(parents=True, exist_ok=True)
    new = {path.relative_to(staging) for path in part_files(staging)}
    for place in sorted(new):
        (target.path / place).parent.mkdir(parents=True, exist_ok=True)
        (staging / place).replace(target.path / place)
    for path in part_files(target.path):
        if _is_ours(path, target) and path.relative_to(target.path) not in new:
            path.unlink()
    shutil.rmtree(staging)


def _name(folder: Path, target: Target) -> None:
    """Names that follow from the task, not from the attempt; and no checksums of Spark's beside them."""
    for number, path in enumerate(part_files(folder)):
        compressed = path.suffix if path.suffix in (".gz", ".zst", ".bz2") else ""
        path.rename(path.with_name(f"part-{target.mark}-{number:05d}{_ENDINGS[target.form]}{compressed}"))
    for path in [*folder.rglob(".*.crc"), *folder.rglob("_SUCCESS")]:
        path.unlink(missing_ok=True)


def _is_ours(path: Path, target: Target) -> bool:
    return path.name.startswith(f"part-{target.mark}-")


def _aside(target: Target) -> Path:
    return target.path.with_name(f".{target.path.name}.before")


def _restore(target: Target) -> None:
    """What a process has put aside that was killed before it put its own there."""
    aside = _aside(target)
    if aside.is_dir() and not target.path.exists():
        aside.rename(target.path)
    elif aside.is_dir():
        shutil.rmtree(aside, ignore_errors=True)
