"""Write the tables of docs/reference/history.md from the code.

    python scripts/generate_history.py [--check]

What stands before and after the marks is written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from noetl.data.history.tables import TABLES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "history.md"
BEGIN, END = "<!-- tables: written by scripts/generate_history.py -->\n", "<!-- end of tables -->\n"


def _lines() -> Iterator[str]:
    for name, table in TABLES.items():
        yield f"\n## {name}\n\n{table.meaning[0].upper()}{table.meaning[1:]}.\n\n"
        yield "| column | type | meaning |\n|---|---|---|\n"
        for column in table.columns:
            yield f"| `{column.name}` | {column.kind} | {column.meaning} |\n"
    yield "\n"


def updated(text: str) -> str:
    """The page with the tables of the code."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{''.join(_lines())}{END}{rest.partition(END)[2]}"


def main() -> int:
    """Write the page, or with --check say whether it is as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        if updated(text) == text:
            return 0
        sys.stderr.write(f"{PAGE.name} is out of date; run: python scripts/generate_history.py\n")
        return 1
    PAGE.write_text(updated(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
