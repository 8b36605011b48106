"""Write the golden corpus and what is expected of it.

    python -m tests.golden.produce [--force]

It was written once and is frozen: its checksums are a promise to every log that exists. It is only
produced again on purpose, when the envelope or the fold is changed on purpose and old logs with it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from noetl.kernel.event import Envelope
from noetl.kernel.fold import State, state_checksum
from noetl.kernel.streams import is_dense
from noetl.kernel.upcast import default_registry
from tests.golden.stories import forks, others, stages, steps
from tests.scribe import START, Scribe, by_stream, fold_all, line_of

PROJECT_ROOT = Path(__file__).parents[2]
CORPUS = Path("tests/golden/corpus")
EXPECTED = PROJECT_ROOT / "tests/golden/expected.json"
HOUR = 3_600_000_000

Tell = Callable[[Scribe], list[str]]

# One file for each root that a story tells of, in the story's order. Each story has an hour of its own, so that
# no two share an id and one ledger can hold them all.
STORIES: dict[Tell, Sequence[Path]] = {
    steps.hello: [CORPUS / "hello.jsonl"],
    steps.branching: [CORPUS / "branching.jsonl"],
    steps.failed: [CORPUS / "failed.jsonl"],
    steps.calls: [CORPUS / "calls_parent.jsonl", CORPUS / "calls_child.jsonl"],
    steps.sequential_loop: [CORPUS / "loop_sequential.jsonl"],
    steps.stalled_loop: [CORPUS / "loop_stalled.jsonl"],
    stages.frames: [CORPUS / "frames.jsonl"],
    stages.fanout_reduce: [CORPUS / "fanout_reduce.jsonl"],
    others.business_objects: [CORPUS / "business_objects.jsonl"],
    others.cancelled: [CORPUS / "cancelled.jsonl"],
    others.batches: [CORPUS / "batches.jsonl"],
    others.newer_release: [CORPUS / "newer_release.jsonl"],
    others.legacy: [CORPUS / "legacy.jsonl"],
    others.registry: [CORPUS / "registry_model.jsonl"],
    others.subscription: [CORPUS / "subscription_orders.jsonl"],
    others.tenant: [CORPUS / "tenant.jsonl"],
    stages.orders: [Path("examples/logs/orders.jsonl")],
    others.patched: [CORPUS / "patched.jsonl"],
    others.custody: [CORPUS / "custody.jsonl"],
    forks.retried: [CORPUS / "retry_source.jsonl", CORPUS / "retry.jsonl"],
    stages.drained: [CORPUS / "drained.jsonl"],
    others.schedules: [CORPUS / "schedules.jsonl"],
    others.holds: [CORPUS / "holds.jsonl"],
    stages.told: [CORPUS / "told.jsonl"],
}


def produce() -> dict[str, list[Envelope]]:
    """Every file's events, by its path from the project's root."""
    files = {}
    for hour, (tell, paths) in enumerate(STORIES.items()):
        scribe = Scribe(now=START + hour * HOUR)
        for path, root in zip(paths, tell(scribe), strict=True):
            files[str(path)] = scribe.of_root(root)
    return files


def encoded(events: Sequence[Envelope]) -> bytes:
    """A file's bytes: one event per line."""
    return b"".join(line_of(event) + b"\n" for event in events)


def replayed(events: Sequence[Envelope], state: State | None = None) -> State:
    """The state after a file's events, read through the upcasters that ship."""
    registry = default_registry()
    return fold_all((registry.upcast(event) for event in events), state)


def expected_of(events: Sequence[Envelope]) -> dict[str, Any]:
    """What is pinned of a file."""
    bundle = replayed(events).bundle()
    return {
        "events": len(events),
        "bundle": bundle,
        "state": state_checksum(bundle, default_registry().digest()),
        "heads": {name: stream[-1].chain_hash for name, stream in by_stream(events).items() if is_dense(name)},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the golden corpus and its expected checksums.")
    parser.add_argument("--force", action="store_true", help="overwrite what is frozen")
    options = parser.parse_args(arguments)
    files = produce()
    there = [path for path in map(PROJECT_ROOT.joinpath, files) if path.exists()]
    if there and not options.force:
        sys.stderr.write(f"{there[0]} is frozen; --force overwrites it and changes what every release must read\n")
        return 1
    for path, events in files.items():
        target = PROJECT_ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(encoded(events))
    expected = {path: expected_of(events) for path, events in files.items()}
    EXPECTED.write_text(json.dumps(expected, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
