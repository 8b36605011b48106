"""What a finished call looks like: the views that rules, conditions and assignments read."""

from __future__ import annotations

from typing import Any

from noetl.kernel.event import Json
from noetl.kernel.lazy import LazyMapping
from noetl.playbook.templates import Views

__all__ = ["error_view", "failure", "normalised_status", "step_output"]

_OK = frozenset({"ok", "success", "completed", "done", "noop"})
_ERROR = frozenset({"error", "failed", "failure"})


def normalised_status(status: Any) -> str:
    """`ok` or `error` for whatever a result calls itself; what nobody knows is ok."""
    return "error" if isinstance(status, str) and status.lower() in _ERROR else "ok"


def failure(code: str, message: str, *, kind: str = "unknown", retryable: bool = False) -> Json:
    """An error in the shape every error has."""
    return {"kind": kind, "code": code, "message": message, "retryable": retryable}


def error_view(result: Any, error: Json) -> Json:
    """What is stored for a failed step run: the fields of the raw result, the error, and the status."""
    fields = dict(result) if isinstance(result, dict) else {}
    return {**fields, "error": error, "status": "error"}


def step_output(
    result: Any, *, failed: bool, error: Json | None, reference: Json | None = None, more: Json | None = None
) -> Json | Views:
    """`output` as arcs and step-level `set` see it. `more` is what the last task adds: `meta`, `http`, `pg`, `py`."""
    is_mapping = isinstance(result, dict | LazyMapping)
    data = result["data"] if is_mapping and "data" in result else result
    status = "error" if failed else normalised_status(result.get("status") if is_mapping else None)
    seen = {**(more or {}), "status": status, "data": data, "ref": reference, "error": error, "response": result}
    return Views(seen) if isinstance(result, LazyMapping) else seen
