"""The client of NATS is an extra: whoever imports it says what to install if it is not there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from noetl.errors import Unavailable

__all__ = ["nats_client"]


@contextlib.contextmanager
def nats_client() -> Iterator[None]:
    """Around the imports of what needs it. Raises Unavailable."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "nats":
            raise
        raise Unavailable("the client of NATS is not installed", hint='pip install "noetl[nats]"') from None
