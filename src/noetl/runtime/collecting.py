"""The garbage collector, told what kind of program this is."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["few_collections"]

_THRESHOLDS = (50_000, 20, 50)


@contextlib.contextmanager
def few_collections() -> Iterator[None]:
    """Look for cycles less often while playbooks run.

    Every step makes and drops some hundreds of small objects, and next to none of them in cycles. With the
    usual thresholds a fifth of a step goes into finding that out.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
