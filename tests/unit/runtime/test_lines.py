"""Lines: who wants to change an execution stands in the same one as everybody else."""

from __future__ import annotations

import gc
import weakref

from noetl.runtime.lines import Lines


async def test_everybody_stands_in_the_same_line() -> None:
    lines = Lines()
    assert lines.of(1) is lines.of(1)
    assert lines.of(1) is not lines.of(2)


async def test_a_line_that_somebody_stands_in_stays_however_many_come_after() -> None:
    lines = Lines()
    held = lines.of(1)
    for other in range(2, 500):
        lines.of(other)
    assert lines.of(1) is held


async def test_a_line_that_nobody_has_used_for_long_is_gone() -> None:
    lines = Lines()
    first = weakref.ref(lines.of(1))
    assert first() is not None
    for other in range(2, 500):
        lines.of(other)
    gc.collect()
    assert first() is None
