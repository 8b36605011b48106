"""The end of a stack: whoever lives is asked to go, in order, and made to go if it does not."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable

from noetl.deploy.local import locks
from noetl.deploy.local.parts import kind_of, patience_of
from noetl.deploy.local.place import Place
from noetl.settings import Settings

__all__ = ["COMMAND", "SUPERVISOR", "living", "stop"]

SUPERVISOR, COMMAND = "supervisor", "up"
_NOT_PARTS = {SUPERVISOR, COMMAND}
_BETWEEN_LOOKS = 0.05
_AFTER_KILL = 10.0
_HURRY = 1.0


def living(place: Place) -> dict[str, int | None]:
    """The processes of a stack that live, but for its supervisor, whoever started them."""
    names = {path.stem for path in place.run.glob("*.lock")} - _NOT_PARTS
    held = [name for name in names if locks.is_held(place.lock_of(name))]
    return {name: locks.holder(place.lock_of(name)) for name in sorted(held, key=lambda name: (_ends(name), name))}


def stop(
    place: Place,
    settings: Settings,
    *,
    only: Collection[str] | None = None,
    now: bool = False,
    tell: Callable[[str, str], None] = lambda name, what: None,
) -> list[str]:
    """Stop them: those who work first, and those who keep things last. Gives the names of those that had to be killed.

    With `now` nobody is waited for who finishes what it has begun.
    """
    names = [name for name in living(place) if only is None or name in only]
    killed: list[str] = []
    for order in sorted({_ends(name) for name in names}):
        together = [name for name in names if _ends(name) == order]
        for name in together:
            tell(name, "stopping")
            _send(place, name, kind_of(name).signal)
        hurry = now and all(kind_of(name).drains for name in together)
        patience = _HURRY if hurry else max(patience_of(name, settings) for name in together)
        for name in _left_after(place, together, patience):
            tell(name, "killed")
            killed.append(name)
            _kill(place, name)
        _left_after(place, together, _AFTER_KILL)
        for name in together:
            tell(name, "stopped")
    return killed


def _ends(name: str) -> int:
    return kind_of(name).ends


def _left_after(place: Place, names: Iterable[str], seconds: float) -> list[str]:
    """Those of them that still live after so long; fewer, and sooner, if they end."""
    end = time.monotonic() + seconds
    left = [name for name in names if locks.is_held(place.lock_of(name))]
    while left and time.monotonic() < end:
        time.sleep(_BETWEEN_LOOKS)
        left = [name for name in left if locks.is_held(place.lock_of(name))]
    return left


def _send(place: Place, name: str, number: int) -> None:
    pid = locks.holder(place.lock_of(name))
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)  # one that was paused hears nothing else
            os.kill(pid, number)


def _kill(place: Place, name: str) -> None:
    """With everything that it has started."""
    pid = locks.holder(place.lock_of(name))
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
