"""Java: where it is, how old it is, or what to install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from noetl.data.session.refusals import SparkUnavailable

__all__ = ["LEAST", "Java", "find_java"]

LEAST = 17
_ANSWER_SECONDS = 20.0
_INSTALL = (
    f"install a Java runtime of at least {LEAST} (Debian: apt-get install openjdk-{LEAST}-jre-headless; "
    "macOS: brew install openjdk), or set JAVA_HOME to one"
)


class Java(NamedTuple):
    """A Java runtime that Spark can use."""

    home: Path
    version: str

    @property
    def program(self) -> Path:
        """What runs it."""
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The Java of JAVA_HOME, else the one on PATH. Raises SparkUnavailable with where it looked and what to install."""
    environ = os.environ if environ is None else environ
    chosen = environ.get("JAVA_HOME")
    if chosen:
        program: Path | None = Path(chosen, "bin", "java")
        looked = f"JAVA_HOME is {chosen}"
        if not os.access(str(program), os.X_OK):
            raise SparkUnavailable(
                f"data stages need Java, and there is none: {looked}, which has no bin/java",
                hint=f"correct JAVA_HOME, or unset it to use the one on PATH; else {_INSTALL}",
            )
    else:
        path = environ.get("PATH", "")
        found = shutil.which("java", path=path)
        program = Path(found).resolve() if found else None
        looked = f"on PATH ({path or 'empty'})"
    if program is None:
        raise SparkUnavailable(f"data stages need Java, and there is none: JAVA_HOME is not set, nor is java {looked}",
                               hint=_INSTALL)  # fmt: skip
    version = _version(program)
    if version is None or _major(version) < LEAST:
        raise SparkUnavailable(
            f"data stages need Java {LEAST} or later, and {program} is {version or 'of a version it does not tell'}",
            hint=_INSTALL,
        )
    return Java(program.parent.parent, version)


def _version(program: Path) -> str | None:
    """By the file beside it where there is one: asking Java itself takes a tenth of a second."""
    try:
        said = (program.parent.parent / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        said = ""
    if found := re.search(r'^JAVA_VERSION="([^"]+)"', said, re.MULTILINE):
        return found[1]
    try:
        answer = subprocess.run(
            [str(program), "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', answer.stderr)
    return found[1] if found else None


def _major(version: str) -> int:
    """17 of 17.0.15; 8 of 1.8.0_392, as it was written then."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return numbers[1] if numbers[:1] == [1] and len(numbers) > 1 else (numbers or [0])[0]
