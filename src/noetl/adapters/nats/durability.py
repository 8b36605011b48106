"""Does NATS put a message on the disk before it acknowledges it? By default it does not.

JetStream's interface does not say; the pages that a server has for its operators do.
"""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from noetl.errors import InvalidSetting, Unavailable
from noetl.units import format_duration

__all__ = ["check_durability"]

_SECONDS = 5.0
_NANOS = 1_000_000_000
_FIX = (
    "write sync_interval: always into the jetstream block of its configuration, or set nats.wal_unsafe = true if what "
    "was acknowledged may be lost when its machine fails"
)


class _Config(msgspec.Struct):
    sync_always: bool = False
    sync_interval: int = 0


class _JetStream(msgspec.Struct):
    config: _Config | None = None


class _Varz(msgspec.Struct):
    port: int = 0
    jetstream: _JetStream = msgspec.field(default_factory=_JetStream)


async def check_durability(monitors: str | None) -> None:
    """Ask every server, by the address of its monitoring pages. Raises InvalidSetting if one may lose what it took."""
    addresses = [part.strip().rstrip("/") for part in (monitors or "").split(",") if part.strip()]
    if not addresses:
        raise InvalidSetting(
            "it is not known whether NATS writes to its disk before it acknowledges: nats.monitor is not set",
            hint="set nats.monitor to the monitoring address of each of its servers, such as http://127.0.0.1:8222 "
            "(http: in their configuration)",
        )
    found = await asyncio.gather(*(asyncio.to_thread(_ask, address) for address in addresses))
    _judge(addresses, found)


def _judge(addresses: Sequence[str], found: Sequence[_Varz]) -> None:
    for address, varz in zip(addresses, found, strict=True):
        config = varz.jetstream.config
        if config is None:
            raise InvalidSetting(f"NATS at {address} runs without JetStream", hint="start it with JetStream (-js)")
        if not config.sync_always:
            every = format_duration(config.sync_interval / _NANOS)
            raise InvalidSetting(
                f"NATS at {address} acknowledges first, and writes to its disk every {every}",
                hint=_FIX,
            )


def _ask(address: str) -> _Varz:
    if urlsplit(address).scheme not in ("http", "https"):
        raise InvalidSetting(f"nats.monitor: '{address}' is no address of a web page", hint="http://127.0.0.1:8222")
    try:
        with urllib.request.urlopen(f"{address}/varz", timeout=_SECONDS) as answer:  # noqa: S310 - checked above
            return msgspec.json.decode(answer.read(), type=_Varz)
    except (OSError, urllib.error.URLError, msgspec.MsgspecError) as error:
        raise Unavailable(
            f"the monitoring pages of NATS at {address} do not answer: {error}",
            hint="check nats.monitor, and http: in the configuration of NATS",
        ) from None
