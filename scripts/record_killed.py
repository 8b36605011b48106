"""Record the page "Killed half-way": a pipeline on Spark, killed with -9 while its frames run, and resumed.

    python scripts/record_killed.py            run it and write the page
    python scripts/record_killed.py --check    fail if somebody has changed the page by hand

Everything between the fences of the page is what the commands print, apart from the name of the directory. The
recording fails, and no page is written, unless the killed run ends with the checks, the rows and the proof of one
that nobody has disturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "killed-half-way.md"
EXAMPLE = ROOT / "examples" / "18_data_quality.yaml"
ROWS = 5_000_000
FRAMES_BEFORE = 7  # how many frames are let through before the kill
PATIENCE = 900.0

TEXT = """\
# Killed half-way

This is a recording, made by `scripts/record_killed.py` and written down as it was printed. The pipeline is
`examples/18_data_quality.yaml`: Spark makes five million orders and cleans them, a fan-out prices them in frames of
250,000 rows, a reduce adds them up by country, and Spark writes the report. It is killed with `kill -9`, which nothing
can catch, while the frames run.

<<run>>

The log has every frame that was committed before that moment, and the run as it was left:

<<left>>

`noetl resume` reads the log and goes on. `generate` and `clean` are not run again: what they have written is named in
the log, with the digest of each file. Of the stage, the frames that were committed stay; those that were in somebody's
hands are run again, from the same rows.

<<resume>>

## What it cost

<<cost>>

A frame that was running when the process died leaves no trace but its lease. The next keeper abandons it and gives it
out again. [How a stage survives](how-a-stage-survives.md) tells who does what.

## The same result

The report, and the report of a second run that nobody has disturbed:

<<same>>

## The proof

Two processes wrote this log, and one of them was killed in the middle of it. It verifies like any other, and its state
is the one that a replay gives:

<<proof>>
"""


class Failed(Exception):
    """The recording does not show what the page says."""


class Session:
    """A directory in which commands are run, and what they printed."""

    def __init__(self, place: Path, rows: int) -> None:
        self.place = place
        self.rows = rows
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("NOETL_")},
            "NOETL_HOME": str(place / "home"), "NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        (place / "examples").symlink_to(ROOT / "examples")

    def arguments(self, *more: str) -> list[str]:
        size = [] if self.rows == ROWS else ["--set", f"rows={self.rows}"]
        return ["run", f"examples/{EXAMPLE.name}", *size, *more]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "noetl", *arguments], cwd=self.place, env=self.environment, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def noetl(self, *arguments: str, result: bool = True) -> str:
        """What a command prints; without its result only what it says on the way. Raises Failed."""
        done = subprocess.run(
            [sys.executable, "-m", "noetl", *arguments], cwd=self.place, env=self.environment, text=True, check=False,
            stdout=subprocess.PIPE if result else subprocess.DEVNULL,
            stderr=subprocess.STDOUT if result else subprocess.PIPE, timeout=PATIENCE,
        )  # fmt: skip
        said = self.tidy((done.stdout if result else done.stderr) or "")
        if done.returncode:
            raise Failed(f"noetl {' '.join(arguments)} gave exit code {done.returncode}:\n{said}")
        return said

    def events(self) -> Counter[tuple[str, str]]:
        """How many events there are, by type and step."""
        log = self.place / "home" / "ledger.db"
        if not log.exists():
            return Counter()
        connection = sqlite3.connect(f"file:{log}?mode=ro", uri=True, timeout=10)
        try:
            query = "SELECT event_type, node_name, count(*) FROM event GROUP BY 1, 2"
            return Counter({(kind, step): count for kind, step, count in connection.execute(query)})
        except sqlite3.OperationalError:  # it is being made
            return Counter()
        finally:
            connection.close()

    def tidy(self, text: str) -> str:
        lines = [line.rstrip() for line in text.replace(f"{self.place}/", "").splitlines()]
        return "\n".join(line for line in lines if line)


def record(rows: int) -> dict[str, str]:
    """Run everything; the blocks of the page by name. Raises Failed."""
    with tempfile.TemporaryDirectory(prefix="noetl-killed-") as made:
        session = Session(Path(made), rows)
        killed, said = _kill(session)
        before = session.events()
        left = session.noetl("list")
        (execution,) = re.findall(r"^  (\d{18})", left, re.MULTILINE)
        resumed = session.noetl("resume", execution, result=False)
        after = session.events()
        report = session.noetl("result", execution, "--table")
        session.noetl(*session.arguments("--set", "folder=again"), result=False)
        other = re.findall(r"^  (\d{18})", session.noetl("list"), re.MULTILINE)[0]
        _compare(session, execution, other)
        proof = _proof(session, execution)
        committed = before["frame.committed", "price"]
        run = " ".join(["noetl", *session.arguments()])
        return {
            "run": _console((f"{run} &", said), (f"kill -9 $!   # after {committed} of its frames", "")),
            "left": _console(("noetl list", left)),
            "resume": _console((f"noetl resume {execution}", resumed)),
            "cost": _cost(before, after, killed),
            "same": _console(
                (f"noetl result {execution} --table", report),
                (f"noetl result {other} --table", session.noetl("result", other, "--table")),
            ),
            "proof": proof,
        }


def _kill(session: Session) -> tuple[float, str]:
    """Start the pipeline, and kill it when some frames are through; when that was, and what it had said."""
    started = session.start(*session.arguments())
    begun = time.monotonic()
    try:
        while session.events()["frame.committed", "price"] < FRAMES_BEFORE:
            if started.poll() is not None or time.monotonic() - begun > PATIENCE:
                raise Failed(f"the run ended before it was killed: {started.communicate()[1]}")
            time.sleep(0.02)
    finally:
        if started.poll() is None:
            started.send_signal(signal.SIGKILL)
    _, said = started.communicate()
    return time.monotonic() - begun, session.tidy(said)


def _cost(before: Counter[tuple[str, str]], after: Counter[tuple[str, str]], seconds: float) -> str:
    for step in ("generate", "clean"):
        if after["command.issued", step] != 1 or after["command.claimed", step] != before["command.claimed", step]:
            raise Failed(f"step '{step}' was run again")
    frames, begun = after["frame.committed", "price"], after["frame.dispatched", "price"]
    if after["step.exit", "price"] != 1 or before["frame.committed", "price"] >= frames:
        raise Failed("the stage was not killed in its middle")
    rows = (
        ("seconds until the kill", f"{seconds:.0f}"),
        ("frames of `price`", f"{frames}"),
        ("committed before the kill, and not run again", f"{before['frame.committed', 'price']}"),
        ("frames that were given out, in all", f"{begun}"),
        ("of these abandoned, because their holder was gone", f"{after['frame.abandoned', 'price']}"),
        ("runs of `generate` and `clean` after the kill", "0"),
    )
    return "\n".join(["| | |", "|---|---:|", *(f"| {what} | {number} |" for what, number in rows)])


def _compare(session: Session, one: str, other: str) -> None:
    found = [_shown(session, execution, "report") for execution in (one, other)]
    checks = [_shown(session, execution, "clean")["expect"] for execution in (one, other)]
    if found[0]["preview"] != found[1]["preview"] or checks[0] != checks[1]:
        raise Failed(f"the killed run has another result: {found}")


def _shown(session: Session, execution: str, step: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(session.noetl("result", execution, step, "--json"))
    value: dict[str, Any] = document["value"]
    return value


def _proof(session: Session, execution: str) -> str:
    live, replayed = (json.loads(session.noetl(name, execution, "--json"))["checksum"] for name in ("status", "replay"))
    if live != replayed:
        raise Failed(f"live {live}, replayed {replayed}")
    state = next(line for line in session.noetl("replay", execution).splitlines() if line.startswith("  state "))
    return _console(
        (f"noetl verify {execution}", session.noetl("verify", execution)),
        (f"noetl replay {execution} | grep state", state),
        (f"noetl status {execution} --json | jq -r .checksum", live),
    )


def _console(*said: tuple[str, str]) -> str:
    lines = [line for command, printed in said for line in (f"$ {command}", printed) if line]
    return "\n".join(["```console", *lines, "```"])


def page_of(blocks: dict[str, str]) -> str:
    """The page with these blocks in it."""
    return re.sub(r"<<(\w+)>>", lambda found: blocks[found[1]], TEXT)


def is_untouched(page: str) -> bool:
    """Whether the page is what this script writes, whatever its blocks say."""
    pattern = re.sub(r"<<\w+>>", r"(?:```console\\n.*?\\n```|\\|.*?\\|)", re.escape(TEXT))
    return re.fullmatch(pattern, page, re.DOTALL) is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only look whether the page is as it was recorded")
    parser.add_argument("--rows", type=int, default=ROWS, help="how many orders; the page has %(default)s")
    parser.add_argument("--page", type=Path, default=PAGE, help="where to write it")
    given = parser.parse_args()
    if given.check:
        if is_untouched(given.page.read_text(encoding="utf-8")):
            return 0
        sys.stderr.write(f"{given.page.name} was changed by hand; change TEXT in scripts/record_killed.py\n")
        return 1
    try:
        blocks = record(given.rows)
    except Failed as error:
        sys.stderr.write(f"nothing was recorded: {error}\n")
        return 1
    given.page.write_text(page_of(blocks), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
