"""Code for executors: our package and the user's modules, as archives that Spark carries to where tasks run.

An archive is named by its content. So the same modules are carried once, changed ones are carried anew, and a
Python worker that still has the old ones in memory is not used for the new. Modules are seen by the jobs of the session
that they were carried for, and by nobody else in the process.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.data.session.conf import is_local
from noetl.data.session.jobs import is_classic
from noetl.data.session.unpacked import unpack
from noetl.data.session.variables import keep_variables
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


def ship_modules(
    session: SparkSession, roots: Sequence[Path], scratch: Path, names: Collection[str] | None = None
) -> None:
    """Make the modules below `roots`, or those of these names, importable in the jobs of a session, as they are now.

    The first root goes before the others. `running` marks those jobs.
    """
    if not roots:
        return
    made = [archive("modules", [root], scratch, names=names) for root in roots]
    if not is_classic(session):
        session.addArtifacts(*map(str, made), pyfile=True)
        return
    context = session.sparkContext
    if is_local(str(context.master)):  # tasks see the same disk
        places = [str(unpack(path)) for path in made]
    else:
        for path in made:
            context.addFile(str(path))
        places = [path.name for path in made]  # an executor has them in the directory that it begins in
    # Workers are kept and used again, with every module they have imported; other variables mean other workers.
    variables = {MODULES_VARIABLE: "-".join(path.stem for path in made), "PYTHONPATH": os.pathsep.join(places)}
    keep_variables(session, variables)


def archive(
    name: str, roots: Sequence[Path], target: Path, *, inside: str = "", names: Collection[str] | None = None
) -> Path:
    """The Python modules below `roots`, and the data files of their packages, as `<name>-<digest>.zip`; with `names`
    only the modules and packages that are called so."""
    files = sorted((str(Path(inside) / file.relative_to(root)), file) for root in roots for file in _files(root, names))
    digest = hashlib.sha256()
    size = 0
    for place, file in files:
        content = file.read_bytes()
        size += len(content)
        if size > _MOST:
            raise InvalidInput(
                f"the modules in {', '.join(map(str, roots))} are more than {format_size(_MOST)}, too much to carry "
                "to executors",
                hint="keep modules apart from what is large, or install them on the executors",
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


def _files(root: Path, only: Collection[str] | None = None) -> Iterator[Path]:
    """Modules anywhere below, other files where a package holds them. Hidden directories and environments are not
    the user's modules."""
    if not root.is_dir():
        raise InvalidInput(f"there is no directory {root} to take modules from", hint="correct the directory")
    for directory, names, listed in os.walk(root):
        here, files = Path(directory), listed
        names[:] = sorted(name for name in names if not _is_skipped(here / name))
        if only is not None and here == root:
            names[:] = [name for name in names if name in only]
            files = [file for file in files if file.removesuffix(".py") in only]
        in_package = "__init__.py" in files
        for file in files:
            if file.endswith(".py") or (in_package and not file.endswith((".pyc", ".so"))):
                yield here / file


def _is_skipped(directory: Path) -> bool:
    return directory.name.startswith(".") or directory.name in _SKIPPED or (directory / "pyvenv.cfg").exists()
