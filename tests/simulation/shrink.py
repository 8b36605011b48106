"""From a long failing run to a short one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["shrink"]

T = TypeVar("T")


def shrink(actions: list[T], fails: Callable[[list[T]], bool], *, tries: int = 200) -> list[T]:
    """Take actions away, in ever smaller pieces, as long as the rest still fails and the tries last."""
    piece = len(actions) // 2
    while piece and tries:
        at = 0
        while at < len(actions) and tries:
            fewer = actions[:at] + actions[at + piece :]
            tries -= 1
            if fails(fewer):
                actions = fewer
            else:
                at += piece
        piece //= 2
    return actions
