"""Where a stage runs: on workers, or on Spark; and why not there.

What runs on Spark pays for its start: some 10 s for a cold session and its first job, half a second for a warm one.
Slots on workers share one event loop. On a machine of two cores that takes some 4,000 rows a second through a pipeline
with a python task, and a million rows a second in whole frames, of which 400 are begun, kept and committed in a second
however small they are; both cores take less than half off the time. So a stage goes to Spark by itself only if workers
would need more than twice as long for it as Spark takes to start.
"""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from noetl.data.frame.protocol import StagePlan
from noetl.data.session.conf import SessionConf
from noetl.data.session.defaults import stays_here
from noetl.data.session.distribution import need_spark
from noetl.data.session.java import find_java
from noetl.data.session.refusals import SparkUnavailable
from noetl.playbook.document import Playbook, Step
from noetl.runtime.stores import is_on_this_disk
from noetl.runtime.vault import wanted_by
from noetl.settings import Settings
from noetl.tools.registry import BUILT_IN, INTERPRETED, Registry

__all__ = ["Placement", "is_worth_it", "why_no_spark", "why_not_on_spark"]

_COLD_SECONDS = 10.0
_WARM_SECONDS = 0.5
_OF_WORKERS = {
    "spark": "its body is a spark task, which needs the driver, and slots on Spark run in executors",
    "transfer": "its body is a transfer, which runs on workers",
}
_ROWS_A_SECOND = {"row": 4_000, "frame": 1_000_000}
_FRAMES_A_SECOND = 400


class Placement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the slots of a stage run and why there, as `stage.started` tells."""

    asked: str
    """What the step says of its engine: auto, spark or worker."""
    host: Literal["worker", "spark"] | None
    """None where it cannot run at all."""
    reason: str
    rows: int | None = None
    """How many rows there are, where that was known and has mattered."""


def why_no_spark() -> str | None:
    """What is missing on this machine; None if a session can be started."""
    try:
        need_spark()
        find_java()
    except SparkUnavailable as problem:
        return f"{problem.message} ({problem.hint})" if problem.hint else problem.message
    return None


def why_not_on_spark(playbook: Playbook, step: Step, settings: Settings, conf: SessionConf) -> str | None:
    """What keeps executors from running a step; None if they can."""
    if conf.remote is not None:
        return "slots need a session with a driver of its own, and spark.remote is a Spark Connect server"
    if settings.payloads.encrypt:
        return "payloads are encrypted, and executors are not given the keys"
    url = settings.payloads.url or ""
    if url.startswith("memory:"):
        return "payloads are kept in the memory of this process, where executors cannot reach them"
    if is_on_this_disk(settings) and not stays_here(conf.master):
        return f"payloads are kept on the disk of this machine, and the executors of {conf.master} are on others"
    if wanted_by(playbook, step).encrypts:
        return "encrypt_secret needs the key of the wallet, which executors are not given"
    known = Registry()
    for task in step.tasks:
        if task.kind in _OF_WORKERS:
            return _OF_WORKERS[task.kind]
        if task.kind not in BUILT_IN and task.kind not in INTERPRETED and known.is_local(task.kind):
            return f"kind '{task.kind}' was added in this process only; make it an entry point of a package"
    return None


def is_worth_it(plan: StagePlan, rows: int | None, frames: int = 0, *, warm: bool) -> bool:
    """Whether workers would need so long for so many rows and frames that Spark pays, its start included."""
    if plan.kind == "loop" or rows is None or (os.cpu_count() or 1) == 1:
        return False
    start = _WARM_SECONDS if warm else _COLD_SECONDS
    return rows / _ROWS_A_SECOND[plan.policy.process] + frames / _FRAMES_A_SECOND > 2 * start
