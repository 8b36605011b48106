"""A standalone cluster: what it gets, and slots on it, which come to the same rows, also when executors are killed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import signal
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from noetl.data.frame.output import without_lineage
from noetl.data.stage.inputs import payload_ref_of
from noetl.data.stage.listing import outputs_in
from noetl.kernel import canonical
from noetl.kernel.event import Json
from noetl.kernel.tail import Stream
from noetl.ports.credentials import Credential
from noetl.runtime.home import Home
from noetl.runtime.wiring import Embedded, open_embedded
from noetl.settings import Settings, Spark
from tests.contracts.slot_host import DOUBLE, ORIGIN, ground, numbers, write_parquet
from tests.services.counter import counting
from tests.services.postgres import Database, postgres, postgres_server
from tests.services.quick_java import QUICK
from tests.services.spark_cluster import Cluster, spark_cluster
from tests.spark.commands import Commands
from tests.spark.processes import run

__all__ = ["postgres", "postgres_server"]

pytestmark = pytest.mark.timeout(600)  # several JVMs, on a machine that may be busy
ROWS = 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def noetl(cluster: Cluster, tmp_path: Path) -> Iterator[Commands]:
    with Commands(tmp_path, cluster.master) as made:
        yield made


def fanout(name: str, over: Any, tool: Any, engine: str, **frame: Any) -> dict[str, Any]:
    spec = {"mode": "fanout", "engine": engine, "max_in_flight": 4, "frame": frame}
    return {"step": name, "loop": {"in": over, "iterator": "row", "spec": spec}, "tool": tool}


def executors(cluster: Cluster) -> list[int]:
    """The processes that the workers of the cluster have started for applications."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            is_ours = process.name.isdecimal() and str(cluster.logs) in str((process / "cwd").readlink())
            if is_ours and b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


CLAIM = """
UPDATE job SET state = 'claimed' WHERE id IN (
  SELECT id FROM job WHERE state = 'pending' ORDER BY id LIMIT {{ __frame_max_rows | int }} FOR UPDATE SKIP LOCKED)
RETURNING id"""
TRIPLED = "import users_module\nresult = {'id': id, 'city': f'c{id % 7}', 'tripled': users_module.tripled(id)}"
IN_CITY = "result = {'city': group.key['city'], 'n': group.table.num_rows, 'ids': sorted(r['id'] for r in group.rows)}"
IN_ALL = "result = {'n': group.table.num_rows, 'sum': sum(r['tripled'] for r in group.rows)}"
STEPS = ("whole", "rows", "cities", "everything", "drain")


def every_shape(engine: str) -> list[dict[str, Any]]:
    """A fan-out of frames, one of rows over what that has made, two reduces, and a cursor."""
    double = {"kind": "python", "code": DOUBLE}
    tripled = {"kind": "python", "input": {"id": "{{ row.id }}"}, "code": TRIPLED}
    cursor = {"kind": "postgres", "auth": "pg_main", "claim": CLAIM}
    update = "UPDATE job SET state = 'done', answer = id * 10 WHERE id = {{ todo.id }}"
    spec = {"mode": "cursor", "engine": engine, "max_in_flight": 2, "frame": {"max_rows": 4}}
    steps: list[dict[str, Any]] = [
        fanout("whole", {"path": "*.parquet"}, double, engine, max_rows=30, process="frame"),
        fanout("rows", "{{ whole.ref }}", tripled, engine, max_rows=9),
        {"step": "cities", "reduce": {"from": "rows", "by": ["city"]}, "tool": {"kind": "python", "code": IN_CITY}},
        {"step": "everything", "reduce": {"from": "rows"}, "tool": {"kind": "python", "code": IN_ALL}},
        {
            "step": "drain", "loop": {"cursor": cursor, "iterator": "todo", "spec": spec},
            "tool": {"kind": "postgres", "auth": "pg_main", "command": update},
        },
    ]  # fmt: skip
    for one, following in itertools.pairwise(steps):
        one["next"] = {"arcs": [{"step": following["step"]}]}
    return steps


async def found_in(embedded: Embedded, execution: int, engine: str) -> dict[str, Any]:
    """What every stage has come to: rows, their number and their digest. The log is proven on the way."""
    await embedded.projector.catch_up(snapshots=False)
    root = Stream(ORIGIN.tenant_id, f"execution/{execution}")
    verified = await embedded.verifier.verify(root)
    assert verified.ok, verified.problems
    events = [item.event for item in await embedded.ledger.read_root(root, limit=10_000)]
    committed = [event for event in events if event.event_type == "frame.committed"]
    assert {(event.meta or {})["locality"]["host"] for event in committed} == {engine}
    found: dict[str, Any] = {}
    for event in events:
        if event.event_type in ("loop.done", "call.done"):
            result = event.payload["result"]["context"]
            rows = await rows_of(embedded, result["ref"]) if "ref" in result else []
            counts = {name: result["stats"][name] for name in ("total", "success", "failed")}
            found[event.node_name or ""] = (counts, len(rows), digest(rows))
    return found


async def rows_of(embedded: Embedded, reference: Json) -> list[Any]:
    ref = payload_ref_of(reference)
    tables = [await embedded.tiers.table(one) for one in outputs_in(await embedded.results.value(ref), ref)]
    return [row for table in tables for row in without_lineage(table).to_pylist()]


def digest(value: Any) -> str:
    return hashlib.sha256(canonical.encode(value)).hexdigest()


@pytest.fixture
def queue(postgres: Database) -> Callable[[], Any]:
    """A queue that is full again; what has become of it, when it was drained."""

    def fill() -> Callable[[], str]:
        postgres.query("DROP TABLE IF EXISTS job; CREATE TABLE job (id int, state text DEFAULT 'pending', answer int)")
        postgres.query(f"INSERT INTO job (id) SELECT g FROM generate_series(1, {ROWS}) AS g")
        return lambda: digest([list(row) for row in postgres.query("SELECT id, state, answer FROM job ORDER BY id")])

    return fill


def prepared(place: Path) -> Path:
    place.mkdir()
    write_parquet(place)
    (place / "users_module.py").write_text("def tripled(number):\n    return 3 * number\n")
    return place


async def in_this_process(place: Path, engine: str, postgres: Database) -> dict[str, Any]:
    """On workers, or on the Spark that the suite has."""
    data: Json = {name: str(value) for name, value in postgres.credential.items()}
    async with ground(prepared(place), engine, Settings(spark=Spark(master="local[2]"))) as on:
        await on.embedded.credentials.put(ORIGIN.tenant_id, Credential(name="pg_main", type="postgres", data=data))
        finished = await on.run(*every_shape(engine))
        assert finished.status == "COMPLETED", finished.error
        return await found_in(on.embedded, finished.execution_id, engine)


def on_another(place: Path, master: str, postgres: Database) -> dict[str, Any]:
    """On a Spark of its own, as a user runs it."""
    given = [part for name, value in postgres.credential.items() for part in ("--data", f"{name}={value}")]
    with Commands(prepared(place), master, eager=True) as noetl:
        noetl.run("credential", "add", "pg_main", "--type", "postgres", *given)
        document = noetl.run("run", noetl.write("t", *every_shape("spark")))
        assert document["status"] == "COMPLETED", document["error"]

    async def look() -> dict[str, Any]:
        async with open_embedded(Home(place / "home"), Settings(), create=False) as embedded:
            return await found_in(embedded, int(document["execution_id"]), "spark")

    return asyncio.run(look())


def test_one_playbook_comes_to_the_same_everywhere(
    cluster: Cluster, postgres: Database, queue: Callable[[], Any], our_spark: None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    drained = queue()
    workers = asyncio.run(in_this_process(tmp_path / "worker", "worker", postgres))
    table = drained()
    assert [workers[step][0]["success"] for step in STEPS] == [100, 100, 7, 1, ROWS]
    assert [workers[step][1] for step in STEPS] == [100, 100, 7, 1, 0]
    monkeypatch.setattr("noetl.runtime.stages.spark_host.is_worth_it", lambda *_, **__: True)
    queue()
    assert asyncio.run(in_this_process(tmp_path / "all_cores", "spark", postgres)) == workers
    assert drained() == table
    for name, master in (("one_core", "local[1]"), ("two_workers", cluster.master)):
        queue()
        assert on_another(tmp_path / name, master, postgres) == workers, master
        assert drained() == table


def test_killed_executors_cost_the_frames_in_their_hands(cluster: Cluster, noetl: Commands) -> None:
    with counting() as counter:
        tool = {"kind": "http", "method": "POST", "url": f"{counter.url}/{{{{ row.id }}}}", "json": {}}
        counter.hold("/21")
        running = noetl.start("run", noetl.write("t", fanout("spread", numbers(ROWS), tool, "spark", max_rows=4)))
        counter.wait_held(seconds=120)
        killed = executors(cluster)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        counter.release()
        document = noetl.document(running)
    assert killed
    assert document["status"] == "COMPLETED", document["error"]
    assert len(counter.calls) == len(counter.keys) == ROWS
    assert counter.total <= ROWS + noetl.abandoned() * 4
    assert document["result"]["rows"] == ROWS


def test_a_cluster_gets_our_package_and_the_users_modules(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "users_module.py").write_text("ANSWER = 42\n")
    code = """
    def look(_):
        import noetl, users_module
        return [(noetl.__file__, users_module.ANSWER)]
    async def main():
        sessions = SparkSessions(HOME)
        given = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": QUICK}
        session = await sessions.get(conf(MASTER, **given), modules=[HOME / "modules"])
        with running(session, "look"):
            found = session.sparkContext.parallelize(range(4), 4).mapPartitions(look).collect()
        say(kind=sessions.info().kind, cores=session.sparkContext.defaultParallelism,
            files=sorted({file for file, _ in found}), answers=sorted({answer for _, answer in found}))
        sessions.close()
    asyncio.run(main())
    """
    said = run(tmp_path, f"MASTER, QUICK = {cluster.master!r}, {QUICK!r}\n" + textwrap.dedent(code))

    assert (said["kind"], said["answers"], said["cores"]) == ("own", [42], 2)
    assert all(".zip/noetl/__init__.py" in file for file in said["files"])
