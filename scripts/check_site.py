"""Fail when a page of the built documentation would fetch anything from another host.

    python scripts/check_site.py build/site

The documentation is read on machines without a network, and a page should tell nobody that it was read.
A link that a reader may follow is fine; a script, style, font, image or frame from elsewhere is not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

LOADED = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "image": "href",
    "img": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "use": "href",
    "video": "src",
}
NAMED_ONLY = {"canonical", "next", "prev", "alternate"}
ELSEWHERE = re.compile(r"\s*(https?:)?//", re.IGNORECASE)
STYLE_SOURCE = re.compile(r"(?:url\(|@import)\s*[\"']?\s*((?:https?:)?//[^\"')]+)", re.IGNORECASE)


class Page(HTMLParser):
    """Collects what a browser would load from elsewhere while it shows the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.feed(text)
        if 'class="mermaid"' in text:
            self.outside.append("a mermaid diagram, whose renderer is fetched from elsewhere; use an SVG file")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        value = given.get(LOADED.get(tag, "")) or ""
        if ELSEWHERE.match(value) and not (tag == "link" and given.get("rel") in NAMED_ONLY):
            self.outside.append(f"<{tag}> loads {value}")


def outside_sources(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        yield from (f"{path}: {source}" for source in Page(text).outside)
    yield from (f"{path}: a style loads {source}" for source in STYLE_SOURCE.findall(text))


def main() -> int:
    site = Path(sys.argv[1])
    pages = sorted(path for path in site.rglob("*") if path.suffix in {".html", ".css", ".svg"})
    found = [source for path in pages for source in outside_sources(path)]
    if not pages:
        found = [f"{site}: nothing was built"]
    print("\n".join(found) if found else f"Docs: {len(pages)} files load nothing from elsewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
