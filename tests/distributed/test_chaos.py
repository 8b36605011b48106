"""Everything is killed, again and again, while executions of every shape run: all complete, no effect is doubled."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

import pytest

from tests.distributed.chaos import SLOTS, Chaos
from tests.distributed.parts import installation
from tests.e2e.cli import PROJECT_ROOT
from tests.services.counter import counting
from tests.services.postgres import Database, postgres, postgres_server

__all__ = ["postgres", "postgres_server"]

EXECUTIONS, WITH_SPARK, KILLS = 200, 20, 14


@pytest.mark.timeout(900)
def test_everything_completes_whatever_is_killed(tmp_path: Path, postgres: Database) -> None:
    """NOETL_CHAOS_SEED gives the order of another run again."""
    seed = int(os.environ.get("NOETL_CHAOS_SEED") or random.randrange(1 << 32))
    with counting() as outside, installation(tmp_path, lease="8s") as installed:
        installed.add("projector", "projector", "--shard", "0/1")
        installed.add_worker("worker1", "--concurrency", str(SLOTS))
        installed.add_worker("worker2", "--concurrency", str(SLOTS), home=installed.home)
        chaos = Chaos(
            installed, outside, postgres, executions=EXECUTIONS, with_spark=WITH_SPARK, kills=KILLS, seed=seed
        )
        with contextlib.closing(chaos):
            chaos.prepare()
            outcome = chaos.run()
            if outcome.problems:
                chaos.save(PROJECT_ROOT / "build" / f"chaos-{seed}")
    assert outcome.problems == [], f"seed {seed}"
