"""What a run of the workload leaves behind: a document for programs, and a page for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from benchmarks.pft.drain import Drained

__all__ = ["Report", "Turn", "write"]

_HEADS = (
    "contestant", "seconds (median)", "requests/s", "HTTP", "SQL", "own", "frames", "rows a frame", "refused", "kills",
    "asked again",
)  # fmt: skip


class Turn(msgspec.Struct, kw_only=True):
    """One run of one contestant, checked."""

    contestant: str
    seconds: float
    done: Drained
    stats: dict[str, Any]
    totals: dict[str, int]
    kills: int = 0

    @property
    def rate(self) -> float:
        """Records a second, each of which took one request."""
        return sum(self.totals.values()) / self.seconds

    @property
    def shares(self) -> dict[str, float]:
        """How the time that rows were in work was spent; what is neither HTTP nor SQL is the contestant itself."""
        whole = self.done.row_seconds or 1.0
        http, sql = self.done.http_seconds / whole, self.done.sql_seconds / whole
        return {"http": http, "sql": sql, "own": max(0.0, 1.0 - http - sql)}


class Report(msgspec.Struct, kw_only=True):
    """All turns of one invocation."""

    facilities: int
    patients: int
    limit: int
    chaos: float = 0.0
    cores: int
    requests: int
    seconds: dict[str, float]
    """The median of each contestant."""
    ratios: dict[str, float]
    turns: list[Turn]


def write(report: Report, folder: Path) -> list[Path]:
    """Write both forms, under a name that says the size, over those of an earlier run of that size."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"pft-{report.facilities}x{report.patients}" + (f"-limit-{report.limit}" if report.limit else "")
    name += "-chaos" if report.chaos else ""
    document, page = folder / f"{name}.json", folder / f"{name}.md"
    document.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    page.write_text(_page(report))
    return [page, document]


def _page(report: Report) -> str:
    limit = f"{report.limit} requests a second" if report.limit else "no limit"
    chaos = f"; a process killed every {report.chaos:g} s" if report.chaos else ""
    lines = [
        f"# PFT, {report.facilities} x {report.patients}",
        "",
        f"{report.requests} records, one request each; {limit}; {report.cores} cores{chaos}.",
        "Every turn was checked record by record, and each record was asked for under one key of its own.",
        "",
        "## Contestants",
        "",
        f"| {' | '.join(_HEADS)} |",
        "|---" * len(_HEADS) + "|",
        *(_contestant(report, name, seconds) for name, seconds in report.seconds.items()),
        "",
        "HTTP, SQL and own are shares of the time that rows were in work, waiting for the processor included.",
        "",
        "## Ratios",
        "",
        "| | ratio |",
        "|---|---|",
        *(f"| {name.replace('/', ' over ')} | {ratio:.3f} |" for name, ratio in report.ratios.items()),
        "",
        "## Totals",
        "",
        "| domain | records |",
        "|---|---|",
        *(f"| {domain} | {count} |" for domain, count in report.turns[0].totals.items()),
        "",
        f"The API spent {_cpu(report):.0f} µs of processor time on a request.",
        "",
    ]
    return "\n".join(lines)


def _contestant(report: Report, name: str, seconds: float) -> str:
    turns = [turn for turn in report.turns if turn.contestant == name]
    middle = min(turns, key=lambda turn: abs(turn.seconds - seconds))
    done, shares = middle.done, middle.shares
    parts = " | ".join(f"{share:.0%}" for share in shares.values())
    rows = done.rows / done.frames if done.frames else 0.0
    again = middle.stats["requests"] - middle.stats["refused"] - report.requests
    return (
        f"| {name} | {seconds:.2f} | {report.requests / seconds:.0f} | {parts} | {done.frames} | {rows:.1f} | "
        f"{middle.stats['refused']} | {middle.kills} | {again} |"
    )


def _cpu(report: Report) -> float:
    """Microseconds a request, over all turns."""
    requests = sum(turn.stats["requests"] for turn in report.turns)
    return 1e6 * sum(float(turn.stats["cpu_seconds"]) for turn in report.turns) / requests if requests else 0.0
