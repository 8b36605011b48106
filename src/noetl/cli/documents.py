"""From the arguments of a command to the text of documents."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from noetl.errors import InvalidInput, NotFound
from noetl.playbook.problems import Problem

__all__ = ["STANDARD_INPUT", "find_files", "read_document"]

STANDARD_INPUT = "-"
_ENDINGS = (".yaml", ".yml")


def find_files(arguments: Iterable[str]) -> list[str]:
    """Every file that is meant: a file itself, or the YAML files below a directory, hidden ones left out."""
    found: dict[str, None] = {}
    for argument in arguments:
        path = Path(argument)
        if argument != STANDARD_INPUT and path.is_dir():
            inside = sorted(str(file) for file in path.rglob("*") if _is_document(file, path))
            if not inside:
                raise NotFound(f"there is no YAML file in {argument}", hint="files end in .yaml or .yml")
            found.update(dict.fromkeys(inside))
        elif argument != STANDARD_INPUT and not path.exists():
            raise NotFound(f"there is no file {argument}")
        else:
            found[argument] = None
    return list(found)


def _is_document(file: Path, root: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(root).parts)
    return file.suffix.lower() in _ENDINGS and not hidden and file.is_file()


def read_document(file: str) -> tuple[str, str | Problem]:
    """The name to print, and the text; or, where it is no text, the problem that says so."""
    name = "<stdin>" if file == STANDARD_INPUT else file
    try:
        data = sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}") from error
    try:
        return name, data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", errors="replace")
        return name, Problem(
            code="NTL-101",
            severity="error",
            line=before.count("\n") + 1,
            column=len(before) - (before.rfind("\n") + 1) + 1,
            message="not valid YAML: the file is not UTF-8 text",
            hint="fix the syntax here",
            file=name,
        )
