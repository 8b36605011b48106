"""Workers without a database, as processes: they run what the server drives, and may be killed or paused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.distributed.stack import Stack, stack
from tests.e2e.test_examples import EXAMPLES, EXPECTED
from tests.services.nats import NatsServer, own_nats
from tests.services.postgres import Database, postgres, postgres_server

__all__ = ["own_nats", "postgres", "postgres_server"]

Servers = Callable[..., NatsServer]
RUN_ON_WORKERS = ("01_hello", "02_branching", "03_fan_out_and_join", "04_loop", "05_pipeline_with_retry",
                  "06_sub_playbook", "07_failure_and_final_step")  # fmt: skip


@pytest.fixture
def whole(tmp_path: Path, postgres: Database, own_nats: Servers) -> Iterator[Stack]:
    with stack(tmp_path, postgres.dsn, own_nats().url) as found:
        yield found


def test_examples_run_on_workers_unchanged(whole: Stack) -> None:
    first, second = whole.worker("w1"), whole.worker("w2", "--concurrency", "2")
    for name in RUN_ON_WORKERS:
        for document in (EXAMPLES / f"{name}.yaml").read_text().split("\n---\n"):
            whole.server.register(document)
    ran = 0
    for name, arguments, status, result in EXPECTED:
        if name in RUN_ON_WORKERS:
            path = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text().split("\n---\n")[-1])["metadata"]["path"]
            given = {key: yaml.safe_load(value) for key, _, value in (one.partition("=") for one in arguments)}
            execution_id, found = whole.run(path, **given)
            assert (found["status"], found["result"]) == (status, result), (name, found)
            assert whole.verified(execution_id)
            ran += 1
    assert ran >= len(RUN_ON_WORKERS)
    for one in (first, second):
        one.terminate()
        assert one.wait(30) == 0
