"""Where a server may listen."""

from __future__ import annotations

import pytest

from noetl.errors import InvalidInput
from noetl.runtime.binding import check_binding, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_tokens(host: str) -> None:
    assert is_loopback(host)
    check_binding(host, 8082, "none")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.com", "localhost.evil.example"])
def test_everything_else_does(host: str) -> None:
    check_binding(host, 8082, "token")
    with pytest.raises(InvalidInput, match="loopback address only") as refused:
        check_binding(host, 8082, "none")
    assert "--auth token" in (refused.value.hint or "")


def test_a_port_that_is_none_is_refused() -> None:
    check_binding("127.0.0.1", 0, "none")
    with pytest.raises(InvalidInput, match="70000 is not a port"):
        check_binding("127.0.0.1", 70000, "none")
