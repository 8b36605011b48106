"""Taking an address, and what there is to say when it cannot be had."""

from __future__ import annotations

import pytest

from noetl.errors import Unavailable
from noetl.server import running
from noetl.server.running import bind


def test_any_free_port() -> None:
    with bind("127.0.0.1", 0) as listening:
        assert listening.getsockname()[1] > 0


def test_a_port_that_is_taken() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(Unavailable, match=f"cannot listen on 127.0.0.1:{port}") as refused:
            bind("127.0.0.1", port)
    assert refused.value.hint is not None
    assert "--port" in refused.value.hint


def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(Unavailable, match=r"cannot listen on 192\.0\.2\.1"):
        bind("192.0.2.1", 0)


async def test_what_was_left_running_is_taken_up_however_long_the_ledger_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "_FIRST_PAUSE", 0.001)
    tries = []

    class Away:
        async def take_up(self) -> int:
            tries.append(1)
            if len(tries) < 3:
                raise Unavailable("the ledger is away")
            return 7

    await running._take_up(Away())  # type: ignore[arg-type]  # all that is asked of it
    assert len(tries) == 3
