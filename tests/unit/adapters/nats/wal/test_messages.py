"""An append as a message: it comes back as it was, and nobody without the key can write one."""

from __future__ import annotations

import msgspec
import pytest

from noetl.adapters.nats.wal.messages import Message, encode, read, subject_of
from noetl.archive.wire import CODECS, Codec
from noetl.errors import InvalidInput
from noetl.kernel.tail import Stream
from tests.scribe import Scribe
from tests.unit.kernel.drafts import STREAM, batch, draft

KEY = b"the wallet's key, 32 bytes long."
SUBJECT = subject_of(draft(), STREAM, sparse=False)


def made(codec: Codec = "json") -> Message:
    events = Scribe().append(batch(draft(payload={"ü": [1, None]}), draft()))
    return encode(SUBJECT, events, "nonce", codec=codec, key=KEY, parts=(3, 4), guards=[("execution/4101", 0)])


@pytest.mark.parametrize("codec", CODECS)
def test_a_message_comes_back_as_it_was(codec: Codec) -> None:
    message = made(codec)
    again = read(message.subject, message.data, message.headers)
    assert again == message
    assert again.events() == Scribe().append(batch(draft(payload={"ü": [1, None]}), draft()))
    assert again.is_sealed_with(KEY)


@pytest.mark.parametrize(
    "change",
    [
        {"subject": "noetl.wal.other"},
        {"data": b"[]"},
        {"nonce": "other"},
        {"parts": (3,)},
        {"guards": ()},
        {"mac": None},
        {"mac": "0" * 64},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_is_changed_breaks_the_seal(change: dict[str, object]) -> None:
    assert not msgspec.structs.replace(made(), **change).is_sealed_with(KEY)
    assert not made().is_sealed_with(b"x" * 32)


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {},
        {"Noetl-Codec": "json"},
        {"Noetl-Codec": "json", "Noetl-Nonce": "n", "Noetl-Parts": "x"},
        {"Noetl-Codec": "json", "Noetl-Nonce": "n", "Noetl-Guards": "[1]"},
    ],
)
def test_what_is_no_append_is_said_to_be_none(headers: dict[str, str] | None) -> None:
    with pytest.raises(InvalidInput):
        read("noetl.wal.x", b"", headers)


def test_the_subject_is_the_executions_own() -> None:
    assert SUBJECT.startswith("noetl.wal.acme.retail.4101.s")
    assert subject_of(draft(), STREAM, sparse=True) == f"{SUBJECT}.sparse"
    tenant = Stream("acme", "tenant/acme")
    assert subject_of(draft(execution_id=None), tenant, sparse=False).startswith("noetl.wal.acme.retail.-.s")
