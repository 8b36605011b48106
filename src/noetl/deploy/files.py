"""Generated files: written, or compared with what is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from noetl.errors import Unavailable

__all__ = ["differing", "write_files"]


def write_files(directory: Path, files: Mapping[str, str]) -> list[Path]:
    """Write them below a directory; those that have changed. Raises Unavailable."""
    changed = [directory / name for name in differing(directory, files) if name in files]
    try:
        for path in changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[str(path.relative_to(directory))], encoding="utf-8")
    except OSError as error:
        raise Unavailable(f"cannot write {error.filename}: {error.strerror}", hint="choose another --out") from None
    return changed


def differing(directory: Path, files: Mapping[str, str]) -> list[str]:
    """The names of those that are missing, or are not what they would be."""
    return [name for name, text in files.items() if _read(directory / name) != text]


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
