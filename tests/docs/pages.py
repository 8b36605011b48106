"""The documentation as a program: which blocks of a page run, and what they must print.

* A `bash` block runs; a page is one shell session, so a later block sees what an earlier one has set.
* A `python` block runs in an interpreter of its own; without its site packages if it does not import noetl.
* A `text` block right below one of these is what it prints, standard error included. As in doctest, `...`
  stands for anything: alone on a line for any number of lines, inside a line for the rest of a word or more.
* Everything else (`sh`, `json`, `toml`, ...) is only shown.

A page with the comment `<!-- needs: spark -->` is run where Spark is, by tests/spark; one with `<!-- needs: stack -->`
starts a whole stack, and is run by tests/distributed.

A session starts in an empty directory with `.venv` and `examples` beside it, as in a clone, and without settings.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```\n(?=\n?(?:```text\n(.*?)^```$)?)", re.MULTILINE | re.DOTALL)
_ANY_LINES = "..."


@dataclass(frozen=True)
class Block:
    """Something to run, and what it is said to print."""

    language: str
    code: str
    line: int
    said: str | None
    said_at: tuple[int, int] | None


def pages() -> list[Path]:
    """Every page that a reader may paste from."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page that run, in order."""
    return [
        Block(
            language=found[1],
            code=found[2],
            line=text.count("\n", 0, found.start()) + 2,
            said=found[3],
            said_at=found.span(3) if found[3] is not None else None,
        )
        for found in _FENCE.finditer(text)
        if found[1] in ("bash", "python")
    ]


def needs_spark(text: str) -> bool:
    """Whether the blocks of a page run only where Spark is."""
    return "\n<!-- needs: spark -->\n" in text


def needs_stack(text: str) -> bool:
    """Whether the blocks of a page bring a whole stack up and down."""
    return "\n<!-- needs: stack -->\n" in text


def run(blocks: Sequence[Block], scratch: Path, *, seconds: float = 60) -> list[tuple[int, str]]:
    """Exit code and output of every block of a page, run as one session."""
    stage, logs = scratch / "stage", scratch / "logs"
    stage.mkdir()
    logs.mkdir()
    (stage / "examples").symlink_to(ROOT / "examples")
    (stage / ".venv").symlink_to(Path(sys.prefix))
    script = [f"cd {stage}"]
    for index, block in enumerate(blocks):
        (logs / f"{index}.code").write_text(block.code, encoding="utf-8")
        script.append(
            f"{_command(block, logs / f'{index}.code')} >{logs}/{index}.out 2>&1; echo $? >{logs}/{index}.exit"
        )
    _session("\n".join(script), _environment(scratch), seconds)
    return [
        (
            int((logs / f"{index}.exit").read_text()),
            _tidy((logs / f"{index}.out").read_text(encoding="utf-8")),
        )
        for index in range(len(blocks))
    ]


def _session(script: str, environment: dict[str, str], seconds: float) -> None:
    """Run it, and leave nothing of what it has started, however it ends."""
    session = subprocess.Popen(["bash", "-c", script], env=environment, start_new_session=True)
    try:
        session.wait(seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(session.pid, signal.SIGKILL)
        session.wait()


def matches(said: str, printed: str) -> bool:
    """True when the output is what the page says, up to the places that it leaves open."""
    lines = [re.escape(line).replace(r"\.\.\.", ".*") for line in _tidy(said).splitlines()]
    pattern = "".join(r"(?:.*\n)*?" if line == ".*" else line + r"\n" for line in lines)
    return re.fullmatch(pattern, _tidy(printed)) is not None


def updated(text: str, results: Sequence[tuple[int, str]]) -> str:
    """The page with what its blocks print now, except where one fails or leaves something open on purpose."""
    for block, (code, output) in reversed(list(zip(blocks_of(text), results, strict=True))):
        if code == 0 and block.said_at is not None and _ANY_LINES not in (block.said or ""):
            start, end = block.said_at
            text = text[:start] + output + text[end:]
    return text


def _command(block: Block, code: Path) -> str:
    if block.language == "bash":
        return f"source {code}"
    alone = "noetl" not in re.findall(r"^(?:from|import) (\w+)", block.code, re.MULTILINE)
    return f"{sys.executable} -I {'-S ' if alone else ''}{code}"


def _environment(scratch: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NOETL_", "PYTEST_"))}
    binaries = Path(sys.executable).parent
    return {**kept, "HOME": str(scratch), "PATH": f"{binaries}:{kept['PATH']}", "NO_COLOR": "1", "TERM": "dumb"}


def _tidy(text: str) -> str:
    """Without the padding of tables, which nobody sees."""
    lines = "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
    return lines + "\n" if lines else ""
