"""From a long failing run to a short one."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.actions import Action

__all__ = ["shrink"]


def shrink(actions: list[Action], fails: Callable[[list[Action]], bool], *, tries: int = 200) -> list[Action]:
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
