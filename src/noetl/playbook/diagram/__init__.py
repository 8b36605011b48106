"""A playbook as a picture: Mermaid text for a page, or an SVG that stands alone."""

from __future__ import annotations

from noetl.playbook.diagram.graph import Graph, graph_of
from noetl.playbook.document import Playbook

__all__ = ["Graph", "graph_of", "mermaid", "svg"]


def mermaid(playbook: Playbook) -> str:
    """The playbook as a Mermaid flowchart."""
    from noetl.playbook.diagram.flowchart import write

    return write(graph_of(playbook))


def svg(playbook: Playbook) -> str:
    """The playbook as an SVG document."""
    from noetl.playbook.diagram.picture import draw

    return draw(graph_of(playbook))
