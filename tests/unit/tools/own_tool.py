"""A tool as users write one, in a module of its own."""

from noetl.tools import tool


@tool("doubled")
def doubled(n: int) -> int:
    """Twice the number."""
    return 2 * n
