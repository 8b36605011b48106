"""Effects that happen once: real processes killed with -9, and a server outside that counts what it was asked, by key.

The expectations are the crash matrix of docs/explanation/effects.md. `off` is a local run as it is by default, where
the commit of a report makes its effects durable; `on` has the barrier, which makes each of them durable by itself.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.cli import Home
from tests.e2e.scenes import END, Scene, book
from tests.services.buckets import Bucket
from tests.services.counter import Counting, counting
from tests.services.moto import SECRET, moto_bucket, moto_server
from tests.services.postgres import Database, postgres, postgres_server

__all__ = ["moto_bucket", "moto_server", "postgres", "postgres_server"]

MODES = {"off": {}, "on": {"NOETL_EFFECTS__BARRIER": "true"}}


ZSTD = b"\x28\xb5\x2f\xfd"


@pytest.fixture
def counter() -> Iterator[Counting]:
    with counting() as counted:
        yield counted


def post(name: str, counter: Counting, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": "http", "method": "POST", "url": f"{counter.url}/{name}", "json": {"pay": 1}, **more}


def pipeline(scene: Scene, *tasks: dict[str, Any]) -> Path:
    return scene.write(book("pay", {"step": "pay", "tool": list(tasks)}))


def kill(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def kill_when_held(
    scene: Scene, file: Path, counter: Counting, word: str, env: dict[str, str], method: str = "POST"
) -> str:
    """Run until a request is held at the server, kill, and let the request go; the id of the execution."""
    counter.hold(word, method)
    process = scene.home.start("run", file, env=env)
    counter.wait_held()
    kill(process)
    counter.release()
    (execution,) = scene.roots()
    return execution


def resumed(home: Home, execution: str, env: dict[str, str]) -> dict[str, Any]:
    document = home.json("resume", execution, env=env)
    assert document["status"] == "COMPLETED", document
    assert home.json("verify", execution, env=env)["parity"]
    return document


@pytest.mark.parametrize("mode", MODES)
class TestMatrix:
    """One effect, and one kill."""

    def test_killed_before_the_call_it_happens_once(self, mode: str, scene: Scene, counter: Counting) -> None:
        file = pipeline(scene, post("before", counter), post("effect", counter))
        execution = kill_when_held(scene, file, counter, "/before", MODES[mode])
        assert counter.calls["/effect"] == 0
        resumed(scene.home, execution, MODES[mode])
        assert counter.calls["/effect"] == 1
        assert len(counter.keys) == 2

    def test_killed_during_the_call_it_happens_again_under_the_same_key(
        self, mode: str, scene: Scene, counter: Counting
    ) -> None:
        file = pipeline(scene, post("effect", counter))
        execution = kill_when_held(scene, file, counter, "/effect", MODES[mode])
        resumed(scene.home, execution, MODES[mode])
        assert list(counter.keys.values()) == [2]

    def test_killed_after_it_was_durable_it_does_not_happen_again(
        self, mode: str, scene: Scene, counter: Counting
    ) -> None:
        steps = ({"step": name, "tool": post(name, counter)} for name in ("effect", "after"))
        file = scene.write(book("pay", *steps))
        execution = kill_when_held(scene, file, counter, "/after", MODES[mode])
        resumed(scene.home, execution, MODES[mode])
        assert counter.calls == {"/effect": 1, "/after": 2}

    def test_killed_in_the_middle_of_three_effects(self, mode: str, scene: Scene, counter: Counting) -> None:
        file = pipeline(scene, *(post(name, counter) for name in ("one", "two", "three")))
        execution = kill_when_held(scene, file, counter, "/two", MODES[mode])
        document = resumed(scene.home, execution, MODES[mode])
        assert counter.calls == {"/one": 1 if mode == "on" else 2, "/two": 2, "/three": 1}
        assert len(counter.keys) == 3
        assert {task["data"]["path"] for task in document["result"]["results"].values()} == set(counter.calls)

    def test_killed_again_and_again_a_loop_has_the_effects_it_should(
        self, mode: str, scene: Scene, counter: Counting
    ) -> None:
        count, wide, kills = 50, 4, 4
        spec = {"mode": "parallel", "max_in_flight": wide}
        loop = {"in": list(range(count)), "iterator": "n", "spec": spec}
        tasks = [post(f"{name}/{{{{ n }}}}", counter) | {"name": name} for name in ("one", "two")]
        file = scene.write(book("loop", {"step": "each", "loop": loop, "tool": tasks}))
        chance = random.Random(f"{mode}/moments")
        allowed, ended, seen = 2 * count, set[str](), Counter[str]()
        for moment in sorted(chance.sample(range(5, 80), kills)):
            process = scene.home.start("run", file, "--key", "daily", env=MODES[mode])
            counter.wait_calls(moment)
            kill(process)
            ended, seen = scene.ended(), counter.calls
            allowed += wide * (2 if mode == "off" else 1)
        document = scene.home.json("run", file, "--key", "daily", env=MODES[mode])
        assert document["result"]["stats"] == {"total": count, "success": count, "failed": 0}
        assert set(counter.calls) == {f"/{name}/{n}" for name in ("one", "two") for n in range(count)}
        assert len(counter.keys) == 2 * count
        assert counter.total <= allowed
        assert max(counter.keys.values()) <= 1 + kills
        for n in (int(name.removeprefix("each")) for name in ended):
            for name in ("one", "two"):
                assert counter.calls[f"/{name}/{n}"] == seen[f"/{name}/{n}"], "it had ended before the last kill"
        assert scene.home.json("verify", document["execution_id"])["parity"]


def test_killed_after_the_call_and_before_the_commit_it_happens_twice(scene: Scene, counter: Counting) -> None:
    file = pipeline(scene, post("effect", counter), post("after", counter))
    execution = kill_when_held(scene, file, counter, "/after", MODES["off"])
    resumed(scene.home, execution, MODES["off"])
    assert counter.calls == {"/effect": 2, "/after": 2}
    assert len(counter.keys) == 2


def test_behind_the_barrier_the_same_kill_repeats_nothing(scene: Scene, counter: Counting) -> None:
    file = pipeline(scene, post("effect", counter), post("after", counter))
    execution = kill_when_held(scene, file, counter, "/after", MODES["on"])
    resumed(scene.home, execution, MODES["on"])
    assert counter.calls == {"/effect": 1, "/after": 2}
    lines = scene.home.json("logs", execution)["lines"]
    assert [(line["task"], line["stream"]) for line in lines] == [("effect", "noetl")]


def test_killed_after_the_call_and_before_it_was_kept_it_happens_twice(
    scene: Scene, moto_bucket: Bucket, moto_server: int
) -> None:
    """The barrier's own window: the server has answered, and the write to the store is on its way."""
    with counting(upstream=moto_server) as counter:
        env = MODES["on"] | {
            "NOETL_PAYLOADS__URL": f"{moto_bucket.url}/payloads",
            "NOETL_PAYLOADS__OPTIONS": f"endpoint={counter.url}, region=us-east-1, retries=1",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }
        file = pipeline(scene, post("one", counter), post("two", counter))
        execution = kill_when_held(scene, file, counter, "effect~two.1.bin", env, "PUT")
        assert counter.calls == {"/one": 1, "/two": 1}
        resumed(scene.home, execution, env)
        assert counter.calls == {"/one": 1, "/two": 2}
        assert len(counter.keys) == 2


def test_an_outcome_that_cannot_be_kept_stops_the_run_which_then_goes_on(scene: Scene, counter: Counting) -> None:
    file = pipeline(scene, post("one", counter))
    counter.hold("/one")
    process = scene.home.start("run", file, env=MODES["on"])
    counter.wait_held()
    in_the_way = scene.home.path / "payloads" / "noetl"
    in_the_way.symlink_to(in_the_way)
    counter.release()
    _, stderr = process.communicate(timeout=END)
    assert process.returncode == 3, stderr
    assert str(in_the_way) in stderr.decode()
    in_the_way.unlink()
    before = counter.total
    resumed(scene.home, scene.roots()[0], MODES["on"])
    assert counter.total == before + 1
    assert len(counter.keys) == 1


def test_a_damaged_outcome_is_named_and_not_adopted(scene: Scene, counter: Counting) -> None:
    file = pipeline(scene, post("one", counter), post("two", counter))
    execution = kill_when_held(scene, file, counter, "/two", MODES["on"])
    (kept,) = scene.home.path.glob("payloads/noetl/**/effect~one.1.bin")
    data = bytearray(kept.read_bytes())
    data[len(data) // 2] ^= 0xFF
    kept.write_bytes(data)
    failed = scene.home.run("resume", execution, "--json", env=MODES["on"])
    assert failed.code == 1
    error = failed.document["error"]
    assert error["code"] == "EFFECT_DAMAGED"
    assert "effect~one.1.bin" in error["message"]
    assert "delete it" in error["message"]
    assert counter.calls == {"/one": 1, "/two": 1}


def test_a_task_without_effects_is_simply_run_again(scene: Scene, counter: Counting) -> None:
    look = post("look", counter, spec={"side_effecting": False})
    file = pipeline(scene, look, post("two", counter))
    execution = kill_when_held(scene, file, counter, "/two", MODES["on"])
    resumed(scene.home, execution, MODES["on"])
    assert counter.calls == {"/look": 2, "/two": 2}


TABLE = """\
import pyarrow
with open(place, "a") as effects:
    effects.write("made\\n")
result = pyarrow.table({"n": list(range(1000))})
"""


def test_a_table_is_adopted_as_a_table(scene: Scene, counter: Counting) -> None:
    effects = scene.place / "effects"
    make = {"name": "make", "kind": "python", "input": {"place": str(effects)}, "code": TABLE}
    look = {"name": "look", "kind": "python", "input": {"table": "{{ make }}"}, "code": "result = table.num_rows"}
    file = pipeline(scene, make, post("two", counter), look)
    execution = kill_when_held(scene, file, counter, "/two", MODES["on"])
    document = resumed(scene.home, execution, MODES["on"])
    assert effects.read_text() == "made\n"
    assert document["result"]["data"] == 1000


def test_an_encrypted_home_adopts_what_nobody_else_can_read(scene: Scene, counter: Counting) -> None:
    env = MODES["on"] | {"NOETL_PAYLOADS__ENCRYPT": "true"}
    file = pipeline(scene, post("one", counter), post("two", counter))
    execution = kill_when_held(scene, file, counter, "/two", env)
    (kept,) = scene.home.path.glob("payloads/noetl/**/effect~one.1.bin")
    assert not kept.read_bytes().startswith(ZSTD)
    resumed(scene.home, execution, env)
    assert counter.calls == {"/one": 1, "/two": 2}


# --- A database that remembers the key itself


INSERT = "INSERT INTO paid (amount) VALUES (7) RETURNING id, amount"
LOCK = 4711


def with_database(scene: Scene, postgres: Database) -> None:
    postgres.query("DROP TABLE IF EXISTS paid, effects; CREATE TABLE paid (id serial, amount int)")
    data = [f"{name}={value}" for name, value in postgres.credential.items()]
    given = [part for one in data for part in ("--data", one)]
    done = scene.home.run("credential", "add", "pg", "--type", "postgres", *given)
    assert done.code == 0, done.stderr


def insert(**more: Any) -> dict[str, Any]:
    return {"name": "effect", "kind": "postgres", "auth": "pg", "effect_table": "effects", "query": INSERT, **more}


def test_with_an_effect_table_the_kill_before_the_commit_repeats_nothing_either(
    scene: Scene, counter: Counting, postgres: Database
) -> None:
    with_database(scene, postgres)
    file = pipeline(scene, insert(), post("after", counter))
    execution = kill_when_held(scene, file, counter, "/after", MODES["off"])
    document = resumed(scene.home, execution, MODES["off"])
    assert postgres.query("SELECT id, amount FROM paid") == [(1, 7)]
    assert postgres.query("SELECT count(*) FROM effects") == [(1,)]
    assert document["result"]["results"]["effect"]["rows"] == [{"id": 1, "amount": 7}]


@pytest.mark.parametrize("mode", MODES)
def test_with_an_effect_table_a_statement_that_was_killed_leaves_nothing_behind(
    mode: str, scene: Scene, postgres: Database
) -> None:
    with_database(scene, postgres)
    file = pipeline(scene, insert(query=f"{INSERT}; SELECT pg_advisory_xact_lock({LOCK})"))
    with psycopg.connect(postgres.dsn, autocommit=True) as held:
        held.execute(f"SELECT pg_advisory_lock({LOCK})".encode())
        process = scene.home.start("run", file, env=MODES[mode])
        waiting = f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = {LOCK} AND NOT granted"
        while postgres.query(waiting) != [(1,)]:
            assert process.poll() is None, process.communicate()
        kill(process)
    execution = scene.roots()[0]
    resumed(scene.home, execution, MODES[mode])
    assert postgres.query("SELECT amount FROM paid") == [(7,)]
    assert postgres.query("SELECT count(*) FROM effects") == [(1,)]


def test_the_outside_sees_the_same_keys_as_the_effect_table(
    scene: Scene, counter: Counting, postgres: Database
) -> None:
    with_database(scene, postgres)
    file = pipeline(scene, insert(), post("after", counter))
    document = scene.home.json("run", file)
    ((effect,),) = postgres.query("SELECT effect_key FROM effects")
    assert effect == f"default/default/{document['execution_id']}/pay~1/0/0/effect~effect.1"
    assert counter.keys == Counter([f"default/default/{document['execution_id']}/pay~1/0/0/effect~after.1"])
