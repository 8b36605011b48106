"""Server-sent events out of whatever pieces the network gives."""

from __future__ import annotations

import pytest

from noetl.api.sse import Message, Reader
from noetl.errors import Unavailable

STREAM = b": still here\n\nid: 1\ndata: {}\n\nevent: end\r\nid: 2\r\ndata: a\r\ndata: b\r\n\r\ndata: cut"
MESSAGES = [Message("message", "{}", "1"), Message("end", "a\nb", "2")]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_messages_do_not_depend_on_how_they_were_cut(size: int) -> None:
    reader = Reader()
    found = [one for at in range(0, len(STREAM), size) for one in reader.feed(STREAM[at : at + size])]
    assert found == MESSAGES
    assert reader.last_id == "2"


def test_signs_of_life_may_come_for_ever() -> None:
    reader = Reader()
    for _ in range(10_000):
        assert reader.feed(b": still here" + b"." * 1000 + b"\n\n") == []


def test_an_event_that_is_far_too_large_is_refused() -> None:
    with pytest.raises(Unavailable, match="far too large"):
        Reader().feed(b"data: " + b"x" * (5 << 20))
