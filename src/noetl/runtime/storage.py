"""How the result of a step is kept: what `output` of the step and of its tasks say about it (DSL 7.5)."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.engine.control import assign
from noetl.errors import InvalidInput
from noetl.kernel import canonical
from noetl.kernel.event import Json, PayloadRef
from noetl.playbook import templates
from noetl.playbook.document import Playbook, Select, Step
from noetl.settings import parse_size

__all__ = ["INLINE_BYTES", "Storage", "storage_of"]

INLINE_BYTES = 64 * 1024
_EXTRACTED_BYTES = 4 * 1024
_MOST_ROWS = 16
_PREVIEW = 1024
_ON_DISK = 1 << 20


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one result."""

    limit: int = INLINE_BYTES
    """A result that is larger as JSON leaves its event; with 0 every one does."""
    select: tuple[Select, ...] | None = None
    store: str | None = None
    scope: str = "execution"
    name: str | None = None

    def left(self, result: Json, ref: PayloadRef) -> Json:
        """What an event keeps of a result whose whole is at `ref`: where that is, and the fields that stay readable."""
        whole = result.get("context")
        reference: Json = {
            "kind": "result_ref",
            "ref": ref.uri,
            "uri": ref.uri,
            "store": self.store or ("disk" if ref.bytes >= _ON_DISK else "kv"),
            "scope": self.scope,
            "meta": {"content_type": ref.media_type, "bytes": ref.bytes, "sha256": ref.sha256},
            "preview": canonical.encode(whole)[:_PREVIEW].decode(errors="ignore"),
        }
        if self.name is not None:
            reference["name"] = self.name
        inner = sorted({_plain(one.path) for one in self.select or () if one.name is None and "." in _plain(one.path)})
        if inner:
            reference["selected"] = inner
        return {"status": result.get("status", "ok"), "reference": reference, "context": self.extracted(whole)}

    def extracted(self, value: Any) -> Json:
        """The bounded part that stays readable: what was selected, else top-level scalars and short lists of rows."""
        found = _small_fields(value) if self.select is None else _selected(value, self.select)
        kept: Json = {}
        size = 0
        for name, path, item in found:
            size += len(canonical.encode(item))
            if size > _EXTRACTED_BYTES:
                break  # the rest is read from where the whole is
            kept = {**kept, name: item} if path is None else assign(kept, path, item)
        return kept


def storage_of(playbook: Playbook, step: Step, names: Json) -> Storage:
    """What is said on the step stands over what is said on its last task, whose result it is."""
    said = step.output.over(step.tasks[-1].output) if step.tasks else step.output
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


def _rendered(limit: str, names: Json) -> int:
    """A size that is written as a template. One that gives none is not said: no result is lost for it."""
    try:
        return parse_size(templates.render_value(limit, names))
    except (templates.TemplateError, InvalidInput):
        return INLINE_BYTES


def _small_fields(value: Any) -> list[tuple[str, None, Any]]:
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
            at = at.get(key, _ABSENT) if isinstance(at, dict) else _ABSENT
        if at is not _ABSENT:
            found.append((one.name or path, None if one.name else path, at))
    return found


_ABSENT: Any = object()


def _plain(path: str) -> str:
    return path.removeprefix("$").removeprefix(".")
