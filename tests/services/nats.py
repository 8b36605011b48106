"""A real NATS with JetStream for the tests: one server for a whole run, an account for each worker of it.

    async def test_something(nats_url: str) -> None: ...

The account is empty when a test begins.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import nats
import pytest

from noetl.deploy.local.nats import find_nats
from noetl.errors import Unavailable
from tests.services.emulator import NOT_AVAILABLE, free_ports, is_listening, shared, wait_for

__all__ = ["NatsServer", "beside", "emptied", "nats_command", "nats_server", "nats_url", "own_nats"]

_ACCOUNTS = 32
PASSWORD = "of-the-tests"


def binary() -> str:
    """The server's program, from its package or installed."""
    try:
        return str(find_nats())
    except Unavailable as error:
        pytest.skip(f"{NOT_AVAILABLE}: nats-server: {error}")


def nats_command(root: Path, ports: Sequence[int]) -> Sequence[str]:
    accounts = "\n".join(
        f'  T{n}: {{ jetstream: enabled, users: [{{ user: "t{n}", password: "{PASSWORD}" }}] }}'
        for n in range(_ACCOUNTS)
    )
    configuration = root / "nats.conf"
    configuration.write_text(
        f'listen: "127.0.0.1:{ports[0]}"\n'
        f'jetstream {{ store_dir: "{root / "jetstream"}", max_file_store: 2GB, max_memory_store: 256MB }}\n'
        f"accounts {{\n{accounts}\n}}\n"
    )
    return [binary(), "-c", str(configuration)]


@pytest.fixture(scope="session")
def nats_server() -> Iterator[int]:
    """The port of this run's server."""
    binary()
    with shared("nats", nats_command) as port:
        yield port


@pytest.fixture
async def nats_url(nats_server: int, worker_id: str) -> str:
    """The address of an account without streams."""
    number = int(worker_id.removeprefix("gw")) % _ACCOUNTS if worker_id.startswith("gw") else 0
    return await emptied(f"nats://t{number}:{PASSWORD}@127.0.0.1:{nats_server}")


def beside(url: str) -> str:
    """The address of another account, which belongs to the same worker."""
    number = int(url.removeprefix("nats://t").partition(":")[0])
    return url.replace(f"//t{number}:", f"//t{(number + _ACCOUNTS // 2) % _ACCOUNTS}:")


async def emptied(url: str) -> str:
    """Delete every stream of an account."""
    async with asyncio.timeout(30):
        client = await nats.connect(url)
        streams = client.jetstream()
        for info in await streams.streams_info():
            await streams.delete_stream(str(info.config.name))
        await client.close()
    return url


class NatsServer:
    """A server of a test's own, on one port and one folder, that can be killed and started again."""

    def __init__(
        self, root: Path, *, limit: str = "1GB", jetstream: bool = True, sync: str = "2m", monitored: bool = False
    ) -> None:
        self._root = root
        self._limit = limit
        self._jetstream = jetstream
        self._sync = sync
        self.port, self._monitor = free_ports(2)
        self._monitored = monitored
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitor(self) -> str:
        return f"http://127.0.0.1:{self._monitor}"

    def start(self) -> NatsServer:
        self._root.mkdir(parents=True, exist_ok=True)
        configuration = self._root / "nats.conf"
        storage = (
            f'store_dir: "{self._root / "jetstream"}", max_file_store: {self._limit}, sync_interval: "{self._sync}"'
        )
        configuration.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            + (f"jetstream {{ {storage} }}\n" if self._jetstream else "")
            + (f'http: "127.0.0.1:{self._monitor}"\n' if self._monitored else "")
        )
        with (self._root / "log").open("ab") as log:
            self._process = subprocess.Popen([binary(), "-c", str(configuration)], stdout=log, stderr=log)
        ports = [self.port, self._monitor] if self._monitored else [self.port]
        wait_for(
            lambda: all(map(is_listening, ports)), f"NATS did not start: {(self._root / 'log').read_text()[-1000:]}"
        )
        return self

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """It keeps its connections, and says nothing any more."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def wipe(self) -> None:
        """Take away all that it has stored; it must not run."""
        shutil.rmtree(self._root / "jetstream", ignore_errors=True)


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[Callable[..., NatsServer]]:
    """Makes servers of the test's own, and ends them."""
    made: list[NatsServer] = []

    def make(**options: Any) -> NatsServer:
        made.append(NatsServer(tmp_path / f"nats{len(made)}", **options))
        return made[-1].start()

    yield make
    for server in made:
        server.kill()
