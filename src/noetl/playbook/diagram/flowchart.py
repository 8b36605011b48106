"""The graph as Mermaid text."""

from __future__ import annotations

from noetl.playbook.diagram.graph import Box, Graph, Way

__all__ = ["write"]

_ARROWS = {"always": "-->", "when": "-->", "failure": "-.->", "finally": "-.->"}
_ENTITIES = str.maketrans({'"': "#quot;", "#": "#35;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;",
                           "\\": "#92;"})  # fmt: skip
_STYLES = (
    "classDef stage stroke:#0d9488,stroke-width:2px",
    "classDef final stroke-dasharray:4 3",
    "classDef begin fill:#64748b,stroke:none",
)


def write(graph: Graph) -> str:
    """A flowchart, top to bottom."""
    names = {box.name: f"s{index}" for index, box in enumerate(graph.boxes)}
    lines = ["flowchart TD", '    begin((" ")):::begin']
    lines += [f"    {names[box.name]}{_shape(box)}{_class(box)}" for box in graph.boxes]
    lines += [f"    begin --> {names[box.name]}" for box in graph.boxes if box.is_entry]
    lines += [f"    {_arrow(way, names)}" for way in graph.ways if way.target in names]
    return "\n".join([*lines, *(f"    {style}" for style in _STYLES)]) + "\n"


def _shape(box: Box) -> str:
    marks = [word for word, is_so in (("fork", box.is_fork), ("join", box.is_join), ("finally", box.is_final)) if is_so]
    text = "<br/>".join(_escape(line) for line in (box.name, *box.lines, *marks))
    if box.is_stage:
        return f'[("{text}")]'
    if box.is_loop:
        return f'[["{text}"]]'
    return f'(["{text}"])' if box.is_final else f'["{text}"]'


def _class(box: Box) -> str:
    return ":::stage" if box.is_stage else ":::final" if box.is_final else ""


def _arrow(way: Way, names: dict[str, str]) -> str:
    label = f'|"{_escape(way.label)}"|' if way.label else ""
    return f"{names[way.source]} {_ARROWS[way.kind]}{label} {names[way.target]}"


def _escape(text: str) -> str:
    return " ".join(text.split()).translate(_ENTITIES)
