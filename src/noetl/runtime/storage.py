"""How the result of a step is kept: what `output` of the step and of its tasks say about it (DSL 7.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from noetl.engine.control import assign
from noetl.errors import InvalidInput
from noetl.kernel import canonical
from noetl.kernel.event import Json, PayloadRef
from noetl.kernel.lazy import LazyMapping, LazySequence, plain
from noetl.payloads.results import JSON
from noetl.playbook import templates
from noetl.playbook.document import Output, Playbook, Select, Step
from noetl.settings import parse_size

__all__ = ["INLINE_BYTES", "About", "Storage", "payload_ref_of", "storage_of", "store_of"]

INLINE_BYTES = 64 * 1024
_EXTRACTED_BYTES = 4 * 1024
_MOST_ROWS = 16
_ON_DISK = 1 << 20
_PREVIEW = 1024
_ELEMENT_BYTES = 8
_JSON = "application/json"


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one result."""

    limit: int = INLINE_BYTES
    """A result that is larger as JSON leaves its event; with 0 every one does."""
    select: tuple[Select, ...] | None = None
    store: str | None = None
    scope: str = "execution"
    name: str | None = None

    def left(self, status: str, value: Any, ref: PayloadRef, about: About) -> Json:
        """What an event keeps of a result whose whole is at `ref`: where that is, and the fields that stay readable."""
        context, inner = self._extracted(value)
        reference: Json = {
            "kind": "result_ref",
            "ref": ref.uri,
            "uri": ref.uri,
            "store": self.store or store_of(about.size),
            "scope": self.scope,
            "meta": _meta(ref),
            "preview": about.preview,
        }
        more: Json = {
            "key": ref.key,
            "name": self.name,
            "expires_at": about.expires_at,
            "ipc": None if ref.ipc is None else msgspec.to_builtins(ref.ipc),
            "selected": inner,
        }
        reference |= {name: said for name, said in more.items() if said}
        return {"status": status, "reference": reference, "context": context}

    def extracted(self, value: Any) -> Json:
        """The bounded part that stays readable: what was selected, else top-level scalars and short lists of rows."""
        return self._extracted(value)[0]

    def _extracted(self, value: Any) -> tuple[Json, list[str]]:
        """That part, and the paths in it that lie inside fields of which the rest is not there."""
        found = _small_fields(value) if self.select is None else _selected(value, self.select)
        kept: Json = {}
        inner: list[str] = []
        size = 0
        for name, path, item in found:
            size += len(canonical.encode(item))
            if size > _EXTRACTED_BYTES:
                break  # the rest is read from where the whole is
            kept = {**kept, name: item} if path is None else assign(kept, path, item)
            inner += [path] if path is not None and "." in path else []
        return kept, sorted(set(inner))


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a result beside where it is."""

    size: int
    """What it comes to as JSON, or for a table in memory."""
    preview: str
    expires_at: str | None = None

    @classmethod
    def of(cls, value: Any, encoded: bytes | None, expires_at: str | None) -> About:
        """`encoded` is the canonical JSON of the value, except for what is not to become JSON."""
        data = canonical.encode(value.head()) if encoded is None else encoded
        size = value.size * _ELEMENT_BYTES if encoded is None else len(encoded)
        return cls(size=size, preview=data[:_PREVIEW].decode(errors="ignore"), expires_at=expires_at)


_UNSAID, _USUAL = Output(), Storage()


def storage_of(playbook: Playbook, step: Step, names: Json) -> Storage:
    """What is said on the step stands over what is said on its last task, whose result it is."""
    task = step.tasks[-1].output if step.tasks else _UNSAID
    if step.output == task == _UNSAID and not playbook.executor.reference_first:
        return _USUAL
    said = step.output.over(task)
    limit = said.inline_max_bytes
    if limit is None:
        limit = 0 if playbook.executor.reference_first else INLINE_BYTES
    elif isinstance(limit, str):
        limit = _rendered(limit, names)
    return Storage(
        limit=min(limit, INLINE_BYTES),
        select=said.select,
        store=None if said.store in (None, "auto") else said.store,
        scope=said.scope or "execution",
        name=said.name,
    )


def store_of(size: int) -> str:
    """Where a result of this size is kept when nothing else was asked for."""
    return "disk" if size >= _ON_DISK else "kv"


def payload_ref_of(reference: Json) -> PayloadRef:
    """The object that an event's reference to a result stands for. Raises msgspec.ValidationError, KeyError."""
    meta = reference["meta"]
    squeezed = meta.get("compression") == "zstd" and meta["content_type"] == _JSON
    fields: Json = {
        "uri": reference["uri"],
        "sha256": meta["sha256"],
        "bytes": meta["bytes"],
        "media_type": JSON if squeezed else meta["content_type"],
    }
    fields |= {name: meta[name] for name in ("rows", "schema_digest") if name in meta}
    fields |= {name: reference[name] for name in ("key", "ipc") if name in reference}
    return msgspec.convert(fields, PayloadRef)


def _meta(ref: PayloadRef) -> Json:
    found: Json = {
        "content_type": _JSON if ref.media_type == JSON else ref.media_type,
        "bytes": ref.bytes,
        "sha256": ref.sha256,
        "compression": "zstd",
    }
    more = {"rows": ref.rows, "schema_digest": ref.schema_digest}
    return {**found, **{name: value for name, value in more.items() if value is not None}}


def _rendered(limit: str, names: Json) -> int:
    """A size that is written as a template. One that gives none is not said: no result is lost for it."""
    try:
        return parse_size(templates.render_value(limit, names))
    except (templates.TemplateError, InvalidInput):
        return INLINE_BYTES


def _small_fields(value: Any) -> list[tuple[str, None, Any]]:
    if isinstance(value, LazyMapping):
        shown = value.head()
        return [(name, None, item) for name, item in shown.items() if name == "columns" or _is_small(name, item)]
    if not isinstance(value, dict):
        return []
    return [(name, None, item) for name, item in value.items() if _is_small(name, item)]


def _is_small(name: str, item: Any) -> bool:
    if not isinstance(item, (dict, list)):
        return len(item) <= _EXTRACTED_BYTES if isinstance(item, str) else True
    return name == "rows" and isinstance(item, list) and len(item) < _MOST_ROWS


def _selected(value: Any, select: tuple[Select, ...]) -> list[tuple[str, str | None, Any]]:
    found: list[tuple[str, str | None, Any]] = []
    for one in select:
        path = _plain(one.path)
        at: Any = value
        for key in path.split("."):
            at = at.get(key, _ABSENT) if isinstance(at, Mapping) else _ABSENT
        if at is not _ABSENT and not _is_long(at):
            found.append((one.name or path, None if one.name else path, plain(at)))
    return found


_ABSENT: Any = object()


def _is_long(value: Any) -> bool:
    """Whether something lazy is sure not to fit: nobody needs to make it to find that out."""
    return isinstance(value, LazyMapping | LazySequence) and value.size > _EXTRACTED_BYTES


def _plain(path: str) -> str:
    return path.removeprefix("$").removeprefix(".")
