"""Write into the pages what their blocks print today: python -m tests.docs"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.docs.pages import ROOT, blocks_of, needs_spark, pages, run, updated


def main() -> int:
    failed = 0
    for page in pages():
        text = page.read_text(encoding="utf-8")
        blocks = blocks_of(text)
        if not blocks:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            results = run(blocks, Path(scratch), seconds=600 if needs_spark(text) else 60)
        for block, (code, output) in zip(blocks, results, strict=True):
            if code:
                failed += 1
                sys.stderr.write(f"{page.relative_to(ROOT)}:{block.line}: exit code {code}\n{output}\n")
        page.write_text(updated(text, results), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
