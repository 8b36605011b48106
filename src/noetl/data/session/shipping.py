"""Code for executors: our package and the user's modules, as archives that Spark carries to where tasks run.

An archive is named by its content. So the same modules are carried once, changed ones are carried anew, and a
Python worker that still has the old ones in memory is not used for the new.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.data.session.jobs import is_classic
from noetl.errors import InvalidInput
from noetl.units import format_size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["archive", "ship_modules", "ship_package"]

_MOST = 64 << 20
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})
_DIGITS = 16
_THEN = (2024, 1, 1, 0, 0, 0)  # the same bytes whenever it is made
MODULES_VARIABLE = "NOETL_MODULES"


def ship_package(session: SparkSession, scratch: Path) -> None:
    """Carry this installation's package to the executors, whatever release they may have themselves."""
    import noetl

    assert noetl.__file__ is not None
    session.sparkContext.addPyFile(str(archive("noetl", [Path(noetl.__file__).parent], scratch, inside="noetl")))


def ship_modules(session: SparkSession, roots: Sequence[Path], scratch: Path) -> None:
    """Make the modules below `roots` importable in tasks, as they are now; the first root goes before the others."""
    if not roots:
        return
    made = [archive("modules", [root], scratch) for root in roots]
    if not is_classic(session):
        session.addArtifacts(*map(str, made), pyfile=True)
        return
    for path in reversed(made):  # each is put in front
        session.sparkContext.addPyFile(str(path))
    # Workers are kept and used again, with every module they have imported; other variables mean other workers.
    session.sparkContext.environment[MODULES_VARIABLE] = "-".join(path.stem for path in made)


def archive(name: str, roots: Sequence[Path], target: Path, *, inside: str = "") -> Path:
    """The Python modules below `roots`, and the data files of their packages, as `<name>-<digest>.zip`."""
    files = sorted((str(Path(inside) / file.relative_to(root)), file) for root in roots for file in _files(root))
    digest = hashlib.sha256()
    size = 0
    for place, file in files:
        content = file.read_bytes()
        size += len(content)
        if size > _MOST:
            raise InvalidInput(
                f"the modules in {', '.join(map(str, roots))} are more than {format_size(_MOST)}, too much to carry "
                "to executors",
                hint="keep modules in a directory of their own, and name it in deps.sys_path",
            )
        digest.update(f"{place}\0{len(content)}\0".encode() + content)
    path = target / f"{name}-{digest.hexdigest()[:_DIGITS]}.zip"
    if not path.exists():
        draft = path.with_suffix(f".{os.getpid()}")
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as bundle:
            for place, file in files:
                bundle.writestr(zipfile.ZipInfo(place, _THEN), file.read_bytes(), zipfile.ZIP_DEFLATED)
        draft.replace(path)
    return path


def _files(root: Path) -> Iterator[Path]:
    """Modules anywhere below, other files where a package holds them. Hidden directories and environments are not
    the user's modules."""
    if not root.is_dir():
        raise InvalidInput(f"there is no directory {root} to take modules from", hint="correct deps.sys_path")
    for directory, names, files in os.walk(root):
        here = Path(directory)
        names[:] = sorted(name for name in names if not _is_skipped(here / name))
        in_package = "__init__.py" in files
        for file in files:
            if file.endswith(".py") or (in_package and not file.endswith((".pyc", ".so"))):
                yield here / file


def _is_skipped(directory: Path) -> bool:
    return directory.name.startswith(".") or directory.name in _SKIPPED or (directory / "pyvenv.cfg").exists()
