"""A run as a notebook shows it: one small card of plain HTML, with nothing loaded from elsewhere.

Everything that comes from a playbook or from data is escaped. Colours are those of the page, only lighter or
darker by opacity, so that the card can be read on a dark page as well as on a light one.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noetl.api.steps import StepLine
    from noetl.api.summaries import Summary

__all__ = ["card"]

_COLOURS = {"COMPLETED": "#2e9e5b", "FAILED": "#d64545", "CANCELLED": "#c98a1b", "RUNNING": "#2f80c8"}
_PLAIN = "#8a8f98"
_MOST_STEPS = 50
_MOST_TEXT = 600
_CELL = "padding:2px 12px 2px 0;text-align:left;background:none;border:0;color:inherit"


def card(summary: Summary, steps: Sequence[StepLine]) -> str:
    """The card of an execution."""
    rows = "".join(_row(line) for line in steps[:_MOST_STEPS])
    more = len(steps) - _MOST_STEPS
    rest = f'<div style="opacity:.65">and {more} more steps</div>' if more > 0 else ""
    heads = "".join(f'<th style="{_CELL};opacity:.65">{name}</th>' for name in ("step", "status", "time", "runs"))
    table = f'<table style="border-collapse:collapse;margin:6px 0"><tr>{heads}</tr>{rows}</table>' if rows else ""
    return (
        '<div style="border:1px solid rgba(128,128,128,.4);border-radius:6px;padding:10px 14px;margin:4px 0;'
        'font-family:system-ui,sans-serif;font-size:13px;line-height:1.45;max-width:760px;color:inherit">'
        f"<div>{_status(summary.status)} <strong>{_text(summary.path or '')}</strong> "
        f'<span style="opacity:.65">{summary.execution_id}{_took(summary)}</span></div>'
        f"{table}{rest}{_error(summary.error)}</div>"
    )


def _row(line: StepLine) -> str:
    runs = f"{line.iterations} iterations" if line.iterations is not None else str(line.runs or "")
    cells = (_text(line.name), _status(line.status), f"{line.duration_ms} ms" if line.runs else "", _text(runs))
    return "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>"


def _status(status: str) -> str:
    return f'<span style="color:{_COLOURS.get(status, _PLAIN)};font-weight:600">{_text(status)}</span>'


def _took(summary: Summary) -> str:
    took = "" if summary.duration_ms is None else f" · {summary.duration_ms} ms"
    return took + ("" if summary.events is None else f" · {summary.events} events")


def _error(error: dict[str, Any] | None) -> str:
    if not error:
        return ""
    said = f"{error.get('code', 'UNKNOWN')}: {error.get('message', '')}"
    return f'<div style="color:{_COLOURS["FAILED"]};white-space:pre-wrap">{_text(said)}</div>'


def _text(value: str) -> str:
    return escape(value if len(value) <= _MOST_TEXT else value[: _MOST_TEXT - 1] + "…")
