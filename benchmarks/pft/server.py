"""The API of the workload: deterministic, rate-limited, and fast enough not to be what is measured.

    python -m benchmarks.pft.server [--port 0] [--limit 0]

It prints its port and serves until it is terminated. `PFT_RATE_LIMIT` is the default of --limit: how many requests
may be answered within any one second; 0 is without limit. A request over the limit gets 429 and costs nothing.
Beside the API: `GET /stats` gives the counters, `POST /reset` sets them to zero, `POST /reset?limit=N` the limit too.

The protocol is written out because a framework costs more per request than the answer does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from benchmarks.pft.answers import Answer, answer
from benchmarks.pft.totals import DETAILS, DOMAINS

__all__ = ["Api", "Limiter", "serve"]

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 429: "Too Many Requests"}
_KEY = b"\r\nidempotency-key:"
_MOST_HEAD = 64 * 1024


class Limiter:
    """At most `limit` requests within any one second: the window slides with each request."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken: deque[float] = deque()

    def admits(self, now: float) -> bool:
        """Whether one more may pass now; one that may not leaves no trace."""
        if not self.limit:
            return True
        taken = self._taken
        while taken and taken[0] <= now - 1.0:
            taken.popleft()
        if len(taken) >= self.limit:
            return False
        taken.append(now)
        return True


@dataclass
class Endpoint:
    """What was asked of one endpoint. An effect is a request that was answered with a record."""

    requests: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    asked: set[str] = field(default_factory=set)
    keys: dict[str, str] = field(default_factory=dict)
    unkeyed: int = 0
    clashes: int = 0

    def count(self, target: str, status: int, key: str) -> None:
        self.requests += 1
        self.statuses[status] += 1
        if status != 200:
            return
        self.asked.add(target)
        if not key:
            self.unkeyed += 1
        elif self.keys.setdefault(key, target) != target:
            self.clashes += 1

    @property
    def figures(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "distinct_records": len(self.asked),
            "distinct_keys": len(self.keys),
            "without_key": self.unkeyed,
            "keys_used_for_two_records": self.clashes,
        }


class Api:
    """Answers and counts."""

    def __init__(self, limit: int = 0) -> None:
        self.reset(limit)

    def reset(self, limit: int) -> None:
        """Begin anew."""
        self._limiter = Limiter(limit)
        self._endpoints = {name: Endpoint() for name in (*DOMAINS, DETAILS)}
        self._unknown = 0
        self._cpu = time.process_time()

    def respond(self, method: str, target: str, key: str, now: float) -> bytes:
        """The response to a request, as it goes over the wire."""
        if target.startswith(("/stats", "/reset")):
            return self._about_itself(method, target)
        if method != "GET":
            return _response(Answer(405, {"error": f"{method} is not offered"}, ""))
        found = answer(target)
        endpoint = self._endpoints.get(found.endpoint)
        if endpoint is None:
            self._unknown += 1
            return _response(found)
        if not self._limiter.admits(now):
            found = Answer(429, {"error": f"more than {self._limiter.limit} requests a second"}, found.endpoint)
        endpoint.count(target, found.status, key)
        return _response(found)

    @property
    def stats(self) -> dict[str, Any]:
        """Everything that was counted since the last reset, and the processor time it took."""
        endpoints = {name: endpoint.figures for name, endpoint in self._endpoints.items()}
        counted = ("requests", "distinct_records", "distinct_keys", "without_key", "keys_used_for_two_records")
        return {
            "limit": self._limiter.limit,
            "cpu_seconds": round(time.process_time() - self._cpu, 3),
            "endpoints": endpoints,
            "unknown": self._unknown,
            **{name: sum(figures[name] for figures in endpoints.values()) for name in counted},
            "refused": sum(figures["statuses"].get("429", 0) for figures in endpoints.values()),
        }

    def _about_itself(self, method: str, target: str) -> bytes:
        path, _, query = target.partition("?")
        if (method, path) == ("GET", "/stats"):
            return _response(Answer(200, self.stats, ""))
        if (method, path) == ("POST", "/reset"):
            limit = dict(parse_qsl(query)).get("limit", str(self._limiter.limit))
            if not limit.isdecimal():
                return _response(Answer(400, {"error": f"limit '{limit}' is not a number from 0"}, ""))
            self.reset(int(limit))
            return _response(Answer(200, {"limit": int(limit)}, ""))
        return _response(Answer(405, {"error": "GET /stats, POST /reset"}, ""))


def _response(found: Answer) -> bytes:
    body = msgspec.json.encode(found.document)
    head = (
        f"HTTP/1.1 {found.status} {_REASONS[found.status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
    )
    retry = "Retry-After: 1\r\n" if found.status == 429 else ""
    return f"{head}{retry}\r\n".encode() + body


class _Connection(asyncio.Protocol):
    """One client. Requests have no body; connections stay open until the client closes them."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._held = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        held = self._held + data
        while (end := held.find(b"\r\n\r\n")) >= 0:
            head, held = held[:end], held[end + 4 :]
            line = head[: head.find(b"\r\n")] if b"\r\n" in head else head
            words = line.decode("latin-1").split(" ")
            if len(words) != 3:
                self._transport.write(_response(Answer(400, {"error": "not a request line"}, "")))
                self._transport.close()
                return
            self._transport.write(self._api.respond(words[0], words[1], _key(head), time.monotonic()))
        self._held = held
        if len(held) > _MOST_HEAD:
            self._transport.close()


def _key(head: bytes) -> str:
    start = head.lower().find(_KEY)
    if start < 0:
        return ""
    start += len(_KEY)
    end = head.find(b"\r\n", start)
    return head[start : end if end >= 0 else len(head)].strip().decode("latin-1")


async def serve(port: int, limit: int) -> None:
    """Serve on loopback until the process is told to stop; the port is printed once it is open."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    api = Api(limit)
    server = await loop.create_server(lambda: _Connection(api), "127.0.0.1", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await stop.wait()
    server.close()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pft.server")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--limit", type=int, default=int(os.environ.get("PFT_RATE_LIMIT", "0")))
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.port, arguments.limit))


if __name__ == "__main__":
    main()
