"""python -m benchmarks NAME|all [--json], or python -m benchmarks pft with options of its own"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import msgspec

from benchmarks.append import append, append_step
from benchmarks.append_postgres import copy_ledger
from benchmarks.bulk_replay import bulk_replay
from benchmarks.dispatch import dispatch, workers
from benchmarks.execute import execute
from benchmarks.folding import fold
from benchmarks.frames import frames
from benchmarks.harness import Measurement
from benchmarks.lake_sync import lake_sync
from benchmarks.pass_table import pass_table
from benchmarks.payload_write import payload_write
from benchmarks.projector import projector
from benchmarks.publisher import publisher
from benchmarks.running import hello, loop, steps
from benchmarks.shards import projector_shards
from benchmarks.shm import shm
from benchmarks.snapshot import snapshot_tail
from benchmarks.spark_tool import spark_tool
from benchmarks.sql import sql
from benchmarks.stages import empty_stage, fan_out, small_frames, stage_memory
from benchmarks.startup import help_

# Each with what it must reach; speed is never asserted in tests, it is read here.
BENCHES: dict[str, tuple[Callable[[], Measurement], str]] = {
    "append": (append, ">= 0.5"),
    "append_step": (append_step, ">= 0.6"),
    "copy_ledger": (copy_ledger, ">= 0.5"),
    "fold": (fold, "<= 4"),
    "snapshot_tail": (snapshot_tail, "<= 0.01"),
    "help": (help_, "<= 10"),
    "steps": (steps, "<= 3"),
    "loop": (loop, "<= 6"),
    "hello": (hello, "<= 25"),
    "execute": (execute, "<= 3"),
    "shm": (shm, "<= 0.05"),
    "payload_write": (payload_write, ">= 0.6"),
    "pass_table": (pass_table, "<= 1.3"),
    "frames": (frames, ">= 0.3"),
    "publisher": (publisher, ">= 0.5"),
    "projector": (projector, ">= 0.4"),
    "projector_shards": (projector_shards, ">= 1.1"),
    "dispatch": (dispatch, "<= 10"),
    "workers": (workers, ">= 1.6"),
    "sql": (sql, "<= 1.2"),
    "spark_tool": (spark_tool, "<= 1.05, and 0.3 s"),
    "fan_out": (fan_out, "<= 1.25"),
    "small_frames": (small_frames, "<= 4"),
    "empty_stage": (empty_stage, "ours < 0.5 s"),
    "lake_sync": (lake_sync, ">= 0.4"),
    "stage_memory": (stage_memory, "<= 1.2"),
    "bulk_replay": (bulk_replay, ">= 1.2"),
}


def main() -> int:
    """Run one benchmark, or all of them."""
    if sys.argv[1:2] == ["pft"]:
        from benchmarks.pft.run import main as pft

        return pft(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*BENCHES, "all"])
    parser.add_argument("--json", action="store_true", help="print one JSON document per benchmark")
    arguments = parser.parse_args()
    names = list(BENCHES) if arguments.name == "all" else [arguments.name]
    for name in names:
        bench, target = BENCHES[name]
        found = bench()
        if arguments.json:
            print(msgspec.json.encode(found).decode())
        else:
            _print(found, target)
    return 0


def _print(found: Measurement, target: str) -> None:
    print(f"{found.bench:<14} ours {found.ours:>12.4g}  reference {found.reference:>12.4g} {found.unit:<10}"
          f" ratio {found.ratio:>7.3f}  wanted {target}")  # fmt: skip
    if spread := found.detail.get("large_to_small"):
        print(f"{'':<14} opening 500 MB takes {spread:.2f} times as long as opening 10 MB (wanted <= 2)")
    if spread := found.detail.get("p99_to_p50"):
        print(f"{'':<14} p99 is {spread:.2f} times p50 (wanted <= 10)")
    if allowed := found.detail.get("allowed"):
        print(f"{'':<14} 5 % and 0.3 s more than by hand come to a ratio of {allowed:.3f}")
    for engine, seen in found.detail.get("engines", {}).items():
        print(f"{'':<14} engine: {engine:<6} {seen['seconds']:.3f} s, {seen['cpu']:.2f} s of CPU", end="")
        print(f"; ratio {seen['ratio']:.3f}, of CPU {seen['cpu_ratio']:.3f}" if "ratio" in seen else "")
    if spread := found.detail.get("cost_ratio"):
        print(f"{'':<14} an event among two million costs {spread:.2f} times one among a hundred thousand (wanted ~1)")
    nested = found.detail.get("row_per_five_events")
    if nested:
        print(f"{'':<14} one row per five events: ratio {nested['ratio']:.3f} (wanted <= 0.1), "
              f"peak {max(nested['full_peak_mb'], found.detail['full_peak_mb']):.0f} MB (wanted < 400)")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
