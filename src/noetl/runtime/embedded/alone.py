"""Being the only process that works on an execution: among those of a home, or among all that share a ledger."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from noetl.runtime.embedded.hold import hold
from noetl.runtime.embedded.hold import name_of as lock_of
from noetl.runtime.requests import Origin
from noetl.runtime.wiring import Embedded

__all__ = ["alone_with"]


def alone_with(
    embedded: Embedded, origin: Origin, home: Path, name: str, on_wait: Callable[[], None]
) -> contextlib.AbstractAsyncContextManager[None]:
    """Be the only one with an execution or a key, by its name; while another process is, wait until it has ended.

    A ledger in the home is used by processes of this machine, whose locks the operating system keeps. One elsewhere has
    leases.
    """
    if embedded.home is None or not embedded.home.elsewhere:
        locked = lock_of(origin.tenant_id, int(name)) if name.isdecimal() else name
        return hold(home / "running", locked, embedded.clock, on_wait)
    from noetl.runtime.remote.alone import held, name_of

    return held(embedded.leases, name_of(origin, name), embedded.clock, on_wait)
