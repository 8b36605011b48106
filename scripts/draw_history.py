"""Draw the pictures of the page "Ask the past": what its three questions print on a terminal.

    python scripts/draw_history.py

The questions are those of the page, asked of the lake of an example's log. Needs Java.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "how-to" / "ask-the-past.md"
NOETL = [sys.executable, "-m", "noetl"]
WIDTH, HEIGHT = 92, 40
QUESTION = re.compile(r'^noetl sql "(SELECT[^"]*)"(.*)$', re.MULTILINE)
PICTURES = {"state": "--as-of", "work": "frame_fact", "cost": "tenant_cost_fact"}
"""What each picture is called, and by what its question is found on the page."""


def questions() -> dict[str, list[str]]:
    """The arguments of each question, as the page has them."""
    asked = [(found[1], found[2].split()) for found in QUESTION.finditer(PAGE.read_text(encoding="utf-8"))]
    return {
        name: next(["sql", query, *more] for query, more in asked if mark in query or mark in more)
        for name, mark in PICTURES.items()
    }


def shown(arguments: list[str], environment: dict[str, str]) -> str:
    """What a command prints on a terminal of this size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    with subprocess.Popen([*NOETL, *arguments], stdout=theirs, stderr=subprocess.PIPE, env=environment) as process:
        os.close(theirs)
        printed = bytearray()
        while chunk := _read(ours):
            printed += chunk
        _, said = process.communicate()
    if process.returncode:
        raise SystemExit(said.decode())
    return printed.decode().replace("\r\n", "\n").strip("\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how Linux says that nobody writes to it any more
        return b""


def drawn(arguments: list[str], printed: str) -> str:
    """The terminal as SVG, without fonts from elsewhere."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    spelled = " ".join(f'"{one}"' if " " in one else one for one in arguments)
    console.print(Text("$ noetl " + re.sub(r"\s+", " ", spelled), style="bold"))
    console.print(Text.from_ansi(printed))
    svg = console.export_svg(title="noetl sql", unique_id="s")
    return re.sub(r"\s*(@font-face \{.*?\}|<!--.*?-->)", "", svg, flags=re.DOTALL)


def main() -> None:
    """Make a lake, ask it, and write the pictures."""
    with tempfile.TemporaryDirectory() as place:
        prices = {"NOETL_PRICES__EXECUTION": "0.05", "NOETL_PRICES__MILLION_ROWS": "100"}
        environment = {**os.environ, "NOETL_HOME": place, "NOETL_TENANT__ID": "acme", **prices}
        subprocess.run([*NOETL, "import", str(ROOT / "examples/logs/orders.jsonl")], env=environment, check=True)
        subprocess.run([*NOETL, "lake", "sync"], env=environment, check=True)
        for name, arguments in questions().items():
            picture = PAGE.with_name(f"{PAGE.stem}-{name}.svg")
            picture.write_text(drawn(arguments, shown(arguments, environment)) + "\n", encoding="utf-8")
            print(picture.relative_to(ROOT))


if __name__ == "__main__":
    main()
