"""The graph as an SVG document that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from noetl.playbook.diagram.graph import Box, Graph, Way
from noetl.playbook.diagram.layout import Edge, Link, Size, arrange

__all__ = ["draw"]

_MARGIN = 24.0
_BEGIN = ""
_TITLE, _SMALL = 14.0, 11.5
_LINE_HEIGHT = 16.0
_CHARACTER = 0.56
_MONO = 0.61

_LIGHT = {
    "paper": "#ffffff", "ink": "#1e293b", "soft": "#64748b", "line": "#94a3b8", "box": "#f8fafc", "edge": "#cbd5e1",
    "stage": "#0d9488", "stage_box": "#f0fdfa", "loop": "#6366f1", "loop_box": "#eef2ff", "bad": "#dc2626",
    "mark": "#e2e8f0",
}  # fmt: skip
_DARK = {
    "paper": "#0f172a", "ink": "#e2e8f0", "soft": "#a3b1c6", "line": "#64748b", "box": "#1e293b", "edge": "#475569",
    "stage": "#2dd4bf", "stage_box": "#12383a", "loop": "#a5b4fc", "loop_box": "#252a5e", "bad": "#f87171",
    "mark": "#334155",
}  # fmt: skip
_SHAPES = """
.noetl { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif }
.box { stroke-width: 1.2 } .final { stroke-dasharray: 5 3 } .way { fill: none; stroke-width: 1.4 }
.finally { stroke-dasharray: 4 4 } .name { font-size: 14px; font-weight: 600 } .line { font-size: 11.5px }
.word { font-size: 10px } .label { font-size: 11px; font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace }
"""
_COLOURS = """
.paper, .plate { fill: %(paper)s } .box { fill: %(box)s; stroke: %(edge)s } .begin { fill: %(soft)s }
.loop { fill: %(loop_box)s; stroke: %(loop)s } .stage { fill: %(stage_box)s; stroke: %(stage)s }
.name, .word { fill: %(ink)s } .line, .label { fill: %(soft)s } .mark { fill: %(mark)s }
.way { stroke: %(line)s } .failure { stroke: %(bad)s } .tip { fill: %(line)s }
.failure-tip, .failure-label { fill: %(bad)s }
"""


def draw(graph: Graph) -> str:
    """The picture."""
    entry = next((box.name for box in graph.boxes if box.is_entry), None)
    ordered = sorted(graph.boxes, key=lambda box: not box.is_entry)
    known = {box.name for box in graph.boxes}
    ways = [way for way in graph.ways if way.target in known and way.target != way.source]
    again = {way.source: way for way in graph.ways if way.target == way.source}
    ordered = [_with_loop(box, again.get(box.name)) for box in ordered]
    sizes = {_BEGIN: Size(16, 16)} | {box.name: _size(box) for box in ordered}
    links = [Link(way.source, way.target, _label_size(way)) for way in ways]
    if entry is not None:
        links.append(Link(_BEGIN, entry, Size(0, 0)))
        ways.append(Way(_BEGIN, entry, "always"))
    else:
        del sizes[_BEGIN]
    laid = arrange(sizes, links)
    parts = [_way(way, edge) for way, edge in zip(ways, laid.edges, strict=True)]
    if entry is not None:
        x, y = laid.centres[_BEGIN]
        parts.append(f'<circle class="begin" cx="{x:.1f}" cy="{y:.1f}" r="7"/>')
    for box in ordered:
        parts.append(_box(box, laid.centres[box.name], sizes[box.name]))
        if box.name in again:
            parts.append(_own_loop(laid.centres[box.name], sizes[box.name], again[box.name]))
    return _document(graph.title, laid.size, parts)


def _document(title: str, size: Size, parts: Sequence[str]) -> str:
    width, height = size.width + 2 * _MARGIN, size.height + 2 * _MARGIN
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="noetl" role="img" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-_MARGIN:.0f} {-_MARGIN:.0f} {width:.0f} {height:.0f}">\n'
        f"<title>{_text(title)}</title>\n<style>{_style()}</style>\n<defs>{_tip('tip')}{_tip('failure-tip')}</defs>\n"
        f'<rect class="paper" x="{-_MARGIN:.0f}" y="{-_MARGIN:.0f}" width="{width:.0f}" height="{height:.0f}"/>\n'
        f"{body}\n</svg>\n"
    )


def _style() -> str:
    """Colours are spelt out, not variables, because many programs that show SVG know none."""
    return f"{_SHAPES}{_COLOURS % _LIGHT}@media (prefers-color-scheme: dark) {{{_COLOURS % _DARK}}}"


def _tip(name: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path class="{name}" d="M0 0L8 4L0 8z"/></marker>'
    )


# --- Boxes ------------------------------------------------------------------------------------------------


def _marks(box: Box) -> list[str]:
    return [word for word, is_so in (("fork", box.is_fork), ("join", box.is_join), ("finally", box.is_final)) if is_so]


def _size(box: Box) -> Size:
    marks = sum(_measure(word, 10) + 14 for word in _marks(box))
    widest = max(_measure(box.name, _TITLE) * 1.06 + marks, *(_measure(line, _SMALL) for line in box.lines))
    return Size(max(widest + 32, 96), 26 + _LINE_HEIGHT * len(box.lines) + 8)


def _box(box: Box, centre: tuple[float, float], size: Size) -> str:
    x, y = centre[0] - size.width / 2, centre[1] - size.height / 2
    look = "stage" if box.is_stage else "loop" if box.is_loop else ""
    classes = " ".join(filter(None, ("box", look, "final" if box.is_final else "")))
    frame = f'rx="9" width="{size.width:.1f}" height="{size.height:.1f}"'
    shadow = f'<rect class="{classes}" x="{x + 4:.1f}" y="{y + 4:.1f}" {frame}/>' if look else ""
    lines = "".join(
        f'<text class="line" x="{x + 16:.1f}" y="{y + 38 + _LINE_HEIGHT * index:.1f}">{_text(line)}</text>'
        for index, line in enumerate(box.lines)
    )
    return (
        f"<g><title>{_text(box.about or box.name)}</title>{shadow}"
        f'<rect class="{classes}" x="{x:.1f}" y="{y:.1f}" {frame}/>'
        f'<text class="name" x="{x + 16:.1f}" y="{y + 21:.1f}">{_text(box.name)}</text>'
        f"{lines}{_mark_row(box, x + size.width, y)}</g>"
    )


def _mark_row(box: Box, right: float, top: float) -> str:
    parts = []
    for word in reversed(_marks(box)):
        width = _measure(word, 10) + 10
        right -= width + 4
        parts.append(
            f'<rect class="mark" rx="6" x="{right:.1f}" y="{top + 9:.1f}" width="{width:.1f}" height="15"/>'
            f'<text class="word" x="{right + width / 2:.1f}" y="{top + 20:.1f}" text-anchor="middle">{word}</text>'
        )
    return "".join(parts)


def _with_loop(box: Box, way: Way | None) -> Box:
    """A box that leads to itself says when, because a label has no room beside it."""
    return box if way is None else box._replace(lines=(*box.lines, f"↺ {way.label or 'always'}"))


def _own_loop(centre: tuple[float, float], size: Size, way: Way) -> str:
    x, y = centre[0] + size.width / 2, centre[1]
    title = f"<title>{_text(way.full)}</title>" if way.full else ""
    path = f"M{x:.1f} {y + 9:.1f}C{x + 19:.1f} {y + 13:.1f} {x + 19:.1f} {y - 13:.1f} {x + 1:.1f} {y - 9:.1f}"
    return f'<g>{title}<path class="way" d="{path}" marker-end="url(#tip)"/></g>'


# --- Ways -------------------------------------------------------------------------------------------------


def _label_size(way: Way) -> Size:
    return Size(len(way.label) * 11 * _MONO + 12, 20) if way.label else Size(0, 0)


def _way(way: Way, edge: Edge) -> str:
    failed = way.kind == "failure"
    classes = f"way {way.kind}" if way.kind in ("failure", "finally") else "way"
    tip = "failure-tip" if failed else "tip"
    path = _corners(edge.points) if edge.is_back else _curve(edge.points)
    label = ""
    if edge.label is not None:
        x, y = edge.label
        size = _label_size(way)
        label = (
            f'<rect class="plate" x="{x - size.width / 2:.1f}" y="{y - 9:.1f}" width="{size.width:.1f}" height="18"/>'
            f'<text class="label{" failure-label" if failed else ""}" x="{x:.1f}" y="{y + 4:.1f}" '
            f'text-anchor="middle">{_text(way.label)}</text>'
        )
    title = f"<title>{_text(way.full)}</title>" if way.full else ""
    return f'<g>{title}<path class="{classes}" d="{path}" marker-end="url(#{tip})"/>{label}</g>'


def _curve(points: Sequence[tuple[float, float]]) -> str:
    """A smooth line that leaves and arrives straight down."""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (x1, y1), (x2, y2) in pairwise(points):
        middle = (y1 + y2) / 2
        parts.append(f"C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}")
    return "".join(parts)


def _corners(points: Sequence[tuple[float, float]], radius: float = 7.0) -> str:
    """A line of right angles with rounded corners."""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        start, end = _towards(corner, before, radius), _towards(corner, after, radius)
        parts.append(f"L{start[0]:.1f} {start[1]:.1f}Q{corner[0]:.1f} {corner[1]:.1f} {end[0]:.1f} {end[1]:.1f}")
    return "".join(parts) + f"L{points[-1][0]:.1f} {points[-1][1]:.1f}"


def _towards(place: tuple[float, float], goal: tuple[float, float], most: float) -> tuple[float, float]:
    dx, dy = goal[0] - place[0], goal[1] - place[1]
    length = max((dx * dx + dy * dy) ** 0.5, 1e-9)
    share = min(most, length / 2) / length
    return place[0] + dx * share, place[1] + dy * share


def _measure(text: str, size: float) -> float:
    """About how wide a text is; wide scripts take two places."""
    return sum(2 if ord(character) > 0x2E80 else 1 for character in text) * size * _CHARACTER


def _text(text: str) -> str:
    """Text as XML may hold it."""
    return escape("".join(character for character in text if character.isprintable()), quote=True)
