"""Checking a bundle: every object it has, and everything they say of each other."""

from __future__ import annotations

import hashlib

import msgspec

from noetl.archive.bundle.layout import EVENTS, OBJECTS, RESULTS, Manifest, object_path, sidecar_path
from noetl.archive.bundle.reader import Bundle, open_bundle, under
from noetl.archive.bundle.segments import sidecar_of
from noetl.errors import Corruption, InvalidInput, NotFound
from noetl.ports.objects import ObjectStore

__all__ = ["Checked", "check_bundle"]


class Checked(msgspec.Struct, kw_only=True):
    """What was found. Without problems the bundle is what was archived."""

    manifest: Manifest | None = None
    manifest_sha256: str | None = None
    events: int = 0
    objects: int = 0
    bytes: int = 0
    trusted: bool = False
    """Whether it is signed by a key that the caller trusts; a signature by some key holds in any case."""
    problems: list[str] = []

    @property
    def ok(self) -> bool:
        """True when nothing is wrong with it."""
        return not self.problems


async def check_bundle(objects: ObjectStore, prefix: str, *, trusted: str | None = None) -> Checked:
    """Read all of a bundle and say what is wrong with it, all at once. Raises NotFound where there is none."""
    found = Checked(trusted=trusted is not None)
    try:
        bundle = await open_bundle(objects, prefix, trusted=trusted)
    except NotFound:
        raise
    except (Corruption, InvalidInput) as error:
        found.problems.append(error.message)
        found.trusted = False
        return found
    found.manifest, found.manifest_sha256 = bundle.manifest, bundle.manifest_sha256
    await _check_parts(bundle, found)
    await _check_sidecars(bundle, found)
    await _check_events(bundle, found)
    await _check_results(bundle, found)
    return found


async def _check_parts(bundle: Bundle, found: Checked) -> None:
    for path, expected in bundle.manifest.parts.items():
        digest, size = hashlib.sha256(), 0
        try:
            async for chunk in bundle.objects.stream(under(bundle.prefix, path)):
                digest.update(chunk)
                size += len(chunk)
        except NotFound:
            found.problems.append(f"{path} is missing from the archive")
            continue
        if digest.hexdigest() != expected.sha256:
            found.problems.append(
                f"{path} was changed: its sha256 is {digest.hexdigest()}, the manifest says {expected.sha256}"
            )
        found.objects += 1
        found.bytes += size


async def _check_sidecars(bundle: Bundle, found: Checked) -> None:
    """The digests beside the segments, and whether there is a segment that nobody knows."""
    known: set[str] = set()
    for segment in bundle.manifest.segments:
        path = sidecar_path(segment.path)
        known |= {segment.path, path}
        try:
            data = await bundle.objects.get(under(bundle.prefix, path))
        except NotFound:
            found.problems.append(f"{path} is missing from the archive")
            continue
        if data != sidecar_of(segment):
            found.problems.append(f"{path} was changed: it is not for the segment that the manifest names")
    async for info in bundle.objects.list(under(bundle.prefix, EVENTS)):
        path = info.key.removeprefix(under(bundle.prefix, ""))
        if path not in known:
            found.problems.append(f"{path} is in the archive, and the manifest does not name it")


async def _check_events(bundle: Bundle, found: Checked) -> None:
    try:
        async for _ in bundle.events():
            found.events += 1
    except (Corruption, InvalidInput) as error:
        found.problems.append(error.message)
    found.objects += len(bundle.manifest.segments)
    found.bytes += sum(segment.bytes for segment in bundle.manifest.segments)


async def _check_results(bundle: Bundle, found: Checked) -> None:
    try:
        results = await bundle.results()
    except Corruption:
        return  # it was named before
    copied = {object_path(entry.ref["sha256"]) for entry in results.objects if entry.copied}
    named = {path for path in bundle.manifest.parts if path.startswith(f"{OBJECTS}/")}
    found.problems += [f"{RESULTS} and the manifest do not agree about {path}" for path in sorted(copied ^ named)]
    for path in sorted(copied & named):
        if bundle.manifest.parts[path].sha256 != path.rpartition("/")[2]:
            found.problems.append(f"{path} is not what its name says")
    if bundle.manifest.payloads and not all(entry.copied for entry in results.objects):
        found.problems.append(f"{RESULTS} has objects that are not copied, though the manifest says that all are")
