"""The files of evidence: those that belong to it and no others, each as the index says."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from noetl.errors import Unavailable
from noetl.replay.evidence.artefacts import FILES, INDEX, SIGNATURE, Entry, Index, Signature
from noetl.replay.evidence.findings import Findings
from noetl.replay.evidence.sheets import read_document

__all__ = ["Files"]


class Files:
    """What is in a directory of evidence. `there` are the names of the plain files that belong to it."""

    def __init__(self, directory: Path, findings: Findings) -> None:
        self._directory = directory
        self._findings = findings
        self.there = self._look_around()

    def index(self, trusted: str | None = None) -> Index | None:
        """The index, if it can be read; with it every file is compared, and its signature with the `trusted` key."""
        if INDEX not in self.there:
            return None
        index = read_document(self._directory / INDEX, Index, self._findings)
        if index is None:
            return None
        if index.checksum != index.own_checksum():
            self._findings.add(INDEX, "checksum", "is not what this document comes to")
        roles = [entry.role for entry in index.entries]
        for role in FILES:
            if roles.count(role) != 1:
                self._findings.add(INDEX, "entries", f"role '{role}' stands there {roles.count(role)} times, not once")
        if sorted(roles) == sorted(FILES) and roles != list(FILES):
            self._findings.add(INDEX, "entries", "the roles stand in another order")
        for number, entry in enumerate(index.entries):
            self._check_entry(f"entries[{number}]", entry)
        self._check_signature(index, trusted)
        return index

    def digest(self, name: str) -> tuple[int, str | None]:
        """How long a file is and its sha256; nothing for one that is not there. Raises Unavailable."""
        if name not in self.there:
            return 0, None
        try:
            with (self._directory / name).open("rb") as source:
                return os.fstat(source.fileno()).st_size, hashlib.file_digest(source, "sha256").hexdigest()
        except OSError as error:
            raise Unavailable(f"cannot read {self._directory / name}: {error.strerror}") from None

    def _look_around(self) -> set[str]:
        needed = {*FILES.values(), INDEX}
        known = {*needed, SIGNATURE}
        try:
            found = {entry.name: entry.is_file(follow_symlinks=False) for entry in os.scandir(self._directory)}
        except OSError as error:
            raise Unavailable(f"cannot read {self._directory}: {error.strerror}") from None
        for name in sorted(needed - found.keys()):
            self._findings.add(name, "(file)", "is missing")
        for name in sorted(found.keys() - known):
            self._findings.add(name, "(file)", "is not a part of evidence")
        for name in sorted(name for name in found.keys() & known if not found[name]):
            self._findings.add(name, "(file)", "is not a plain file")
        return {name for name in found.keys() & known if found[name]}

    def _check_signature(self, index: Index, trusted: str | None) -> None:
        if trusted is not None and index.signed_by != trusted:
            self._findings.add(INDEX, "signed_by", f"is {index.signed_by or 'nobody'}, not {trusted}")
        if index.signed_by is None or SIGNATURE not in self.there:
            if (index.signed_by is None) != (SIGNATURE not in self.there):
                self._findings.add(SIGNATURE, "(file)", f"the index is signed by {index.signed_by or 'nobody'}")
            return
        signature = read_document(self._directory / SIGNATURE, Signature, self._findings)
        if signature is None:
            return
        from noetl.tools.secrets.signing import holds

        _, digest = self.digest(INDEX)
        if signature.public_key != index.signed_by:
            self._findings.add(SIGNATURE, "public_key", f"is {signature.public_key}, the index says {index.signed_by}")
        if signature.index_sha256 != digest:
            self._findings.add(SIGNATURE, "index_sha256", f"is {signature.index_sha256}, the index is {digest}")
        if not holds((self._directory / INDEX).read_bytes(), signature.signature, signature.public_key):
            self._findings.add(SIGNATURE, "signature", "does not hold: that key has not signed this index")

    def _check_entry(self, place: str, entry: Entry) -> None:
        if entry.role not in FILES:
            self._findings.add(INDEX, f"{place}.role", f"'{entry.role}' is not a role that evidence has")
        elif entry.path != FILES[entry.role]:
            self._findings.add(INDEX, f"{place}.path", f"is '{entry.path}', not '{FILES[entry.role]}'")
        elif entry.path in self.there:
            size, digest = self.digest(entry.path)
            if size != entry.bytes:
                self._findings.add(entry.path, "(bytes)", f"has {size} bytes, the index says {entry.bytes}")
            if digest != entry.sha256:
                self._findings.add(entry.path, "(sha256)", f"is {digest}, the index says {entry.sha256}")
