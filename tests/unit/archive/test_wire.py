"""An event in a message comes out as it went in, in either codec."""

from __future__ import annotations

import pytest

from noetl.archive.wire import CODECS, Codec, decode_event, encode_event
from noetl.errors import InvalidInput
from noetl.kernel.event import checksum_of, record_of
from tests.golden.produce import produce
from tests.unit.kernel.drafts import PAYLOAD_REF, envelope


@pytest.mark.parametrize("codec", CODECS)
def test_every_event_of_the_corpus_comes_out_with_its_checksum(codec: Codec) -> None:
    for events in produce().values():
        for event in events[:40]:
            back = decode_event(encode_event(event, codec), codec)
            assert back == event
            assert checksum_of(record_of(back)) == event.envelope_checksum


@pytest.mark.parametrize("codec", CODECS)
def test_references_survive(codec: Codec) -> None:
    event = envelope(payload_ref=PAYLOAD_REF, meta={"worker_id": "w"})
    assert decode_event(encode_event(event, codec), codec) == event


@pytest.mark.parametrize(("data", "codec"), [(b"", "json"), (b"\xff", "json"), (b"{}", "json"), (b"", "feather")])
def test_what_is_no_event_is_refused(data: bytes, codec: str) -> None:
    with pytest.raises(InvalidInput, match="not"):
        decode_event(data, codec)


def test_a_codec_nobody_knows_is_named() -> None:
    with pytest.raises(InvalidInput, match="'xml'"):
        decode_event(b"<event/>", "xml")
