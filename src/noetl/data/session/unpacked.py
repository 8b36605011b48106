"""Our package on an executor: carried there as an archive, and unpacked before it is used for long.

Spark puts archives on the import path by names that are relative to the directory of the executor. Code that goes to
another directory loses them, and a program inside of one cannot be started. This module is imported from the archive;
everything after it is not.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["run_unpacked"]

_PACKAGE = "noetl"


def run_unpacked(target: str, argument: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run `module:function` of our package with an argument. Runs there."""
    settle()
    module, _, name = target.partition(":")
    function: Any = getattr(importlib.import_module(module), name)
    yield from function(argument, batches)


def settle() -> None:
    """Make the import path good for any working directory, and our package one of plain files."""
    sys.path[:] = [os.path.abspath(place) if place.startswith(".") else place for place in sys.path]  # noqa: PTH100 - text, as it stands there
    own = sys.modules[_PACKAGE].__file__
    archive = None if own is None else Path(own).absolute().parent.parent
    if archive is None or not archive.is_file():
        return
    sys.path.insert(0, str(unpack(archive)))
    sys.path_importer_cache.clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
        del sys.modules[name]


def unpack(archive: Path) -> Path:
    """The directory with what is in an archive, made whole by whoever comes first."""
    target = archive.with_suffix("")
    if not target.is_dir():
        draft = archive.with_name(f".{archive.stem}-{secrets.token_hex(4)}")
        with zipfile.ZipFile(archive) as bundle:
            bundle.extractall(draft)
        with contextlib.suppress(OSError):  # somebody else was faster
            draft.rename(target)
        shutil.rmtree(draft, ignore_errors=True)
    return target
