"""Warnings of the work itself, as lines on standard error, without a secret in them."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import AsyncIterator

__all__ = ["warnings_shown"]


@contextlib.asynccontextmanager
async def warnings_shown(guard: logging.Filter) -> AsyncIterator[None]:
    """Print what is logged from warnings upwards, by us and by libraries, until the end of the block."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("warning: %(message)s"))
    handler.addFilter(guard)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
