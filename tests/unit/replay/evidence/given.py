"""Evidence of a small execution, and ways to change it so that only its content can tell."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from noetl.kernel.tail import Stream
from noetl.replay.evidence import EvidenceWriter
from noetl.replay.evidence.artefacts import FILES, INDEX, Adapter, Index
from noetl.replay.evidence.sheets import pretty
from noetl.tools.secrets.keys import Key
from noetl.tools.secrets.signing import Signer
from tests.unit.kernel.drafts import STREAM, draft
from tests.unit.replay.shop import Shop

ADAPTER = Adapter(name="memory", projector="embedded")


def writer_of(shop: Shop) -> EvidenceWriter:
    return EvidenceWriter(
        shop.ledger, shop.projections, shop.replayer, shop.verifier, shop.clock, adapter=ADAPTER, version="1.2.3"
    )


async def a_run(shop: Shop, *, stream: Stream = STREAM) -> Stream:
    """An execution with a command and a payload, projected."""
    await shop.run_steps(2, stream=stream)
    ref = await shop.payloads.of_tenant(stream.tenant_id).store(b'{"a": 1}', media_type="application/json")
    for event_type in ("command.issued", "command.claimed"):
        await shop.write(draft(event_type, command_id=9, node_name="load"), stream=stream)
    await shop.write(draft("call.done", command_id=9, node_name="load", payload_ref=ref), stream=stream)
    await shop.projector.catch_up()
    return stream


SIGNER = Signer(Key(id="k1", secret=b"s" * 32))


async def evidence(directory: Path, *, signer: Signer | None = None) -> Path:
    """Evidence that holds."""
    shop = Shop()
    target = directory / "evidence"
    assert (await writer_of(shop).write(await a_run(shop), target, signer=signer)).ok
    return target


def change_text(directory: Path, role: str, change: Callable[[str], str]) -> None:
    """Change a document and make the index anew, as somebody would who knows how it is made."""
    file = directory / FILES[role]
    before = file.read_text()
    after = change(before)
    assert after != before
    file.write_text(after)
    index_anew(directory)


def change(directory: Path, role: str, edit: Callable[[dict[str, Any]], object]) -> None:
    """The same for a small document, whose layout stays as it should be."""

    def changed(text: str) -> str:
        document = json.loads(text)
        edit(document)
        return msgspec.json.format(json.dumps(document), indent=2) + "\n"

    change_text(directory, role, changed)


def index_anew(directory: Path) -> None:
    """An index whose digests are those of the files as they are now."""
    index = msgspec.json.decode((directory / INDEX).read_bytes(), type=Index)
    entries = []
    for entry in index.entries:
        data = (directory / entry.path).read_bytes()
        entries.append(msgspec.structs.replace(entry, bytes=len(data), sha256=hashlib.sha256(data).hexdigest()))
    index = msgspec.structs.replace(index, entries=entries)
    (directory / INDEX).write_bytes(pretty(msgspec.structs.replace(index, checksum=index.own_checksum())))
