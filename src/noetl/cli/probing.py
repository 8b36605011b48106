"""Where a process that serves nothing else says how it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["probe_at", "probe_host"]

F = TypeVar("F", bound=Callable[..., Any])


def probe_host(function: F) -> F:
    """`--metrics-host`, beside `--metrics-port`."""
    return click.option(
        "--metrics-host", default="127.0.0.1", show_default=True, metavar="ADDRESS",
        help="Where to answer; whoever reaches it is answered, so let others in on a private network only.",
    )(function)  # fmt: skip


def probe_at(host: str, port: int | None) -> tuple[str, int] | None:
    """Where that is, or None if nobody asked for it."""
    return None if port is None else (host, port)
