"""A bucket as the place that a task writes to: looked at before it runs, and filled when its rows are good."""

from __future__ import annotations

import msgspec

from noetl.data.published import Manifest, Published
from noetl.data.sinks.target import Target
from noetl.data.sinks.written import Written
from noetl.data.sources import Reading
from noetl.data.work import Done

__all__ = ["already_there", "open_bucket", "publish"]


async def open_bucket(target: Target, reading: Reading) -> Published:
    """The objects below the address of a target, with the credential that the output names."""
    caller = reading.call.caller(reading.auth(target.auth, "output"))
    return Published(*await reading.resolver.store(target.uri, caller), target.uri)


async def already_there(bucket: Published, target: Target) -> Done | None:
    """What an earlier delivery of the task has published, or nothing if `mode` leaves what others have."""
    if (known := await bucket.known(target.mark)) is not None:
        return _done(known, target)
    if await bucket.is_taken(target.mode):
        return Done(written=Written(to=target.uri, form=target.form, mode=target.mode, rows=0, bytes=0, skipped=True))
    return None


async def publish(bucket: Published, target: Target, done: Done) -> Done:
    """Put the files of a task there, and make them seen all at once."""
    if done.folder is None:  # code that returned nothing
        return done
    manifest = Manifest(mark=target.mark, mode=target.mode, form=target.form, rows=done.rows, columns=done.columns,
                        bytes=sum(file.bytes for file in done.files), files=done.files, expect=done.expect,
                        preview=done.preview)  # fmt: skip
    published = await bucket.publish(manifest, done.folder)
    return msgspec.structs.replace(_done(published, target), plan=done.plan)


def _done(said: Manifest, target: Target) -> Done:
    written = Written(to=target.uri, form=said.form, mode=said.mode, rows=said.rows, bytes=said.bytes, files=said.files)
    return Done(columns=said.columns, rows=said.rows, preview=said.preview, expect=said.expect, written=written)
