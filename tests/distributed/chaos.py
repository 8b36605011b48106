"""Executions of every shape, submitted while one part after the other is killed; and what must hold afterwards.

seed        decides the order of the kills and their moments; it is printed, and gives the same order again
effects     calls to a server outside, which counts them by idempotency key
the end     everything has completed, every effect has one key, the log proves itself, nothing is left over
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

from noetl.adapters.nats.connection import connect
from noetl.adapters.nats.queue import NatsCommandQueue
from tests.distributed.parts import Installation
from tests.services.counter import Counting
from tests.services.postgres_server import Database

__all__ = ["Chaos", "Kill", "Outcome"]

KINDS = ("server", "worker", "spark", "projector", "publisher", "nats", "postgres")
SLOTS = 4
"""How many commands a worker runs at once."""
_ITEMS, _ROWS, _JOBS, _SPARK_ROWS = 4, 6, 6, 4
_FRAME = 2
_END_SECONDS = 240.0
_SPARK_SECONDS = 3.0
"""What an execution with Spark stages may take of its own, when all of them have waited for Spark."""
_LOOK_SECONDS = 0.2
_CLAIM = """
UPDATE chaos_job SET state = 'claimed' WHERE (run, id) IN (
  SELECT run, id FROM chaos_job WHERE run = '{{ execution_id }}' AND state = 'pending'
  ORDER BY id LIMIT {{ __frame_max_rows | int }} FOR UPDATE SKIP LOCKED) RETURNING id"""
_AGAIN = [
    {"when": "{{ output.error.retryable }}", "then": {"do": "retry", "attempts": 6, "delay": 2.0}},
    {"when": "{{ output.status == 'error' }}", "then": {"do": "fail"}},
]


@dataclass(frozen=True)
class Kill:
    """What was killed, when, and how long it took until somebody had come further."""

    kind: str
    part: int
    at: float
    up_after: float
    moved_after: float | None = None


@dataclass
class Outcome:
    """What a run has come to."""

    seed: int
    executions: int
    with_spark: int
    seconds: float = 0.0
    kills: list[Kill] = field(default_factory=list)
    effects: int = 0
    raw_calls: int = 0
    submit_retries: int = 0
    events: int = 0
    verified: int = 0
    verify_seconds: float = 0.0
    finish_seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def playbooks(url: str) -> dict[str, list[dict[str, Any]]]:
    """The workflows by name; `n` is the number of the execution, which its effects have in their paths."""

    def post(path: str) -> dict[str, Any]:
        return {"kind": "http", "method": "POST", "url": f"{url}/{{{{ n }}}}/{path}", "json": {}}

    pause = {"kind": "python", "code": "import time\ntime.sleep(0.1)\nresult = {'paused': True}"}
    done = {"step": "done", "tool": {"kind": "python", "code": "result = {'done': True}"}}
    numbers = {"in": list(range(_ITEMS)), "iterator": "item", "spec": {"mode": "parallel", "max_in_flight": 2}}
    frames = {"mode": "fanout", "max_in_flight": 2, "frame": {"max_rows": _FRAME}}
    table = {"kind": "postgres", "auth": "chaos_pg"}
    cursor = {"mode": "cursor", "max_in_flight": 2, "frame": {"max_rows": _FRAME}}
    fill = (
        f"INSERT INTO chaos_job (run, id) SELECT '{{{{ execution_id }}}}', g "
        f"FROM generate_series(0, {_JOBS - 1}) AS g ON CONFLICT DO NOTHING"
    )
    # What a slot had claimed and not yet recorded when it was killed, nobody has run: it goes back, and round again.
    back = "UPDATE chaos_job SET state = 'pending' WHERE run = '{{ execution_id }}' AND state = 'claimed' RETURNING id"
    save = "UPDATE chaos_job SET state = 'done' WHERE run = '{{ execution_id }}' AND id = {{ iter.todo.id }}"
    return {
        "steps": [{"step": "first", "tool": pause}, {"step": "call", "tool": post("call")}, done],
        "loop": [{"step": "each", "loop": numbers, "tool": [{"name": "wait", **pause},
                 {"name": "call", **post("item{{ item }}")}]}, done],
        "child": [{"step": "first", "tool": pause}, {"step": "call", "tool": post("child")}],
        "parent": [{"step": "ask", "tool": {"kind": "playbook", "path": "chaos/child", "input": {"n": "{{ n }}"},
                    "timeout": 600}}, {"step": "call", "tool": post("parent")}, done],
        "fanout": [{"step": "rows", "loop": {"in": list(range(_ROWS)), "iterator": "row", "spec": frames},
                    "tool": [{"name": "wait", **pause}, {"name": "call", **post("row{{ row }}")}]}, done],
        "cursor": [
            {"step": "fill", "tool": {**table, "command": fill}},
            {"step": "drain", "loop": {"cursor": {**table, "claim": _CLAIM}, "iterator": "todo", "spec": cursor},
             "tool": [{"name": "call", **post("job{{ iter.todo.id }}")}, {"name": "save", **table, "command": save}]},
            {"step": "check", "tool": {**table, "query": back},
             "next": {"arcs": [{"step": "drain", "when": "{{ check.rows | length > 0 }}"}, {"step": "done"}]}},
            done,
        ],
        "spark": [
            {"step": "make", "tool": {"kind": "spark", "sql": f"SELECT id FROM range({_SPARK_ROWS})",
                                      "spec": {"policy": {"rules": _AGAIN}}}},
            {"step": "rows", "loop": {"in": "{{ make.ref }}", "iterator": "row", "spec": {**frames, "engine": "spark"}},
             "tool": [{"name": "wait", **pause}, {"name": "call", **post("spark{{ row.id }}")}]},
            done,
        ],
    }  # fmt: skip


EFFECTS: dict[str, Sequence[str]] = {
    "steps": ("call",),
    "loop": [f"item{n}" for n in range(_ITEMS)],
    "parent": ("child", "parent"),
    "fanout": [f"row{n}" for n in range(_ROWS)],
    "cursor": [f"job{n}" for n in range(_JOBS)],
    "spark": [f"spark{n}" for n in range(_SPARK_ROWS)],
}
_TURN = ("steps", "loop", "parent", "steps", "fanout", "steps", "loop", "parent", "steps", "cursor")


def shapes(count: int, with_spark: int) -> list[str]:
    """Which playbook each execution runs; those with Spark are spread over the whole run."""
    found = [_TURN[number % len(_TURN)] for number in range(count)]
    for number in range(with_spark):
        found[number * count // with_spark] = "spark"
    return found


class Chaos:
    """A run: executions are submitted in as many batches as there are kills, and in each batch something is killed."""

    def __init__(
        self, installed: Installation, outside: Counting, work: Database, *, executions: int, with_spark: int,
        kills: int, seed: int, say: Callable[[str], None] = print,
    ) -> None:  # fmt: skip
        self._installed = installed
        self._outside = outside
        self._work = work
        self._random = random.Random(seed)
        self._shapes = shapes(executions, with_spark)
        self._order = self._ordered(kills)
        self._say = say
        self._client = httpx.Client(base_url=installed.url, timeout=30)
        self.ids: dict[int, str] = {}
        self.outcome = Outcome(seed=seed, executions=executions, with_spark=with_spark)

    def _ordered(self, kills: int) -> list[str]:
        """Each kind equally often, in rounds of an order of their own."""
        kinds = [kind for kind in KINDS if kind != "spark" or "spark" in self._shapes]
        found: list[str] = []
        while len(found) < kills:
            found += self._random.sample(kinds, len(kinds))
        return found[:kills]

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    # --- Beginning

    def prepare(self) -> None:
        """What the executions need: playbooks, a credential, a table of the user's own."""
        self._work.query(
            "CREATE TABLE chaos_job (run text, id int, state text DEFAULT 'pending', PRIMARY KEY (run, id))"
        )
        for name, workflow in playbooks(self._outside.url).items():
            self._post("/api/catalog/register", {"content": json.dumps(_book(name, workflow))})
        given = [part for name, value in self._work.credential.items() for part in ("--data", f"{name}={value}")]
        home, environment = self._installed.home, self._installed.environment
        done = home.run("credential", "add", "chaos_pg", "--type", "postgres", *given, env=environment)
        assert done.code == 0, done.stderr

    # --- Running

    def run(self) -> Outcome:
        """Submit, kill, wait for the end, and look. What does not hold is in the outcome's problems."""
        began = time.monotonic()
        self._say(f"seed {self.outcome.seed}, kills: {' '.join(self._order)}")
        share = -(-len(self._shapes) // max(1, len(self._order)))
        for place, kind in enumerate(self._order):
            batch = range(place * share, min((place + 1) * share, len(self._shapes)))
            self._run_batch(kind, batch, began)
        submitted = time.monotonic()
        for number in range(len(self._order) * share, len(self._shapes)):
            self._submit(number)
        self._await_end()
        self.outcome.finish_seconds = time.monotonic() - submitted
        self.outcome.seconds = time.monotonic() - began
        self._look()
        return self.outcome

    def _run_batch(self, kind: str, batch: Sequence[int], began: float) -> None:
        """Submit half of some executions, and the other half while something is down."""
        seen = self._outside.total
        for number in batch[: len(batch) // 2]:
            self._submit(number)
        self._await_moved(seen, 20.0)
        time.sleep(self._random.uniform(0.0, 0.5))
        with ThreadPoolExecutor(1) as beside:
            killing = beside.submit(self._kill, kind, self._random.randrange(len(self._installed.kinds[kind])), began)
            for number in batch[len(batch) // 2 :]:
                self._submit(number)
            killing.result()

    def _submit(self, number: int) -> None:
        path = f"chaos/{self._shapes[number]}"
        asked = {"path": path, "payload": {"n": number}, "idempotency_key": f"chaos-{number}"}
        self.ids[number] = self._post("/api/execute", asked)["execution_id"]

    def _post(self, path: str, content: Any) -> Any:
        """As any client does: the same once more until it is answered."""
        deadline = time.monotonic() + _END_SECONDS
        while True:
            try:
                answer = self._client.post(path, json=content)
                if answer.status_code < 500:
                    assert answer.status_code == 200, answer.text
                    return answer.json()
                said = answer.text
                self._note_refusal(path, answer)
            except httpx.TransportError as error:
                said = f"{type(error).__name__}: {error}"
            assert time.monotonic() < deadline, said
            self.outcome.submit_retries += 1
            time.sleep(_LOOK_SECONDS)

    def _note_refusal(self, path: str, answer: httpx.Response) -> None:
        """A server that cannot answer says when to come again; everything else is a fault of its own."""
        if answer.status_code != 503 or "Retry-After" not in answer.headers:
            self.outcome.problems.append(f"{path} was answered {answer.status_code}: {answer.text[:300]}")

    def _kill(self, kind: str, chosen: int, began: float) -> None:
        parts = self._installed.kinds[kind]
        if kind == "spark":
            self._await(lambda: bool(self._installed.spark.pids), 60.0)
        seen, at = self._outside.total, time.monotonic()
        parts[chosen].kill()
        parts[chosen].start()
        up = time.monotonic() - at
        patience = 3.0 if kind == "spark" else 30.0  # its next start takes long, and nobody waits for it but its own
        moved = time.monotonic() - at if self._await_moved(seen, patience) else None
        self.outcome.kills.append(Kill(kind, chosen, at - began, up, moved))
        self._say(f"{at - began:7.1f} s  {kind} {chosen} is back after {up:.1f} s; effects go on after {moved}")

    def _await_moved(self, seen: int, seconds: float) -> bool:
        """Whether effects went on; at once where only those are left that wait for Spark to start."""

        def is_moved() -> bool:
            return self._outside.total > seen or all(path == "chaos/spark" for _, path in self._open())

        return self._await(is_moved, seconds)

    def _await(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    # --- The end

    def _open(self) -> list[tuple[str, str]]:
        """Executions that have not ended, as the rows say; that they cannot be seen is no end."""
        try:
            found = self._client.get("/api/executions", params={"status": "RUNNING", "page_size": 100})
        except httpx.TransportError:
            return [("unknown", "")]
        if found.status_code != 200:
            self._note_refusal("/api/executions", found)
            return [("unknown", "")]
        return [(one["execution_id"], one["path"]) for one in found.json()["executions"]]

    def _await_end(self) -> None:
        patience = _END_SECONDS + _SPARK_SECONDS * self.outcome.with_spark
        if not self._await(lambda: not self._open(), patience):
            self.outcome.problems.append(f"not ended: {self._open()}")

    def _look(self) -> None:
        problems = self.outcome.problems
        problems += self._unfinished()
        problems += self._wrong_effects()
        problems += self._left_over()
        problems += self._unproven()

    def _unfinished(self) -> Iterator[str]:
        for number, execution_id in self.ids.items():
            found = self._client.get(f"/api/executions/{execution_id}/status").json()
            if not found.get("completed"):
                yield f"{self._shapes[number]} {number} ({execution_id}): {json.dumps(found)[:600]}"

    def _wrong_effects(self) -> Iterator[str]:
        calls = self._outside.made
        keys: dict[str, set[str]] = {}
        for path, key in calls:
            keys.setdefault(path, set()).add(key)
        wanted = {f"/{n}/{name}" for n, shape in enumerate(self._shapes) for name in EFFECTS[shape]}
        self.outcome.effects, self.outcome.raw_calls = len(wanted), len(calls)
        if missing := wanted - keys.keys():
            yield f"effects that nobody made: {sorted(missing)[:20]}"
        if strange := keys.keys() - wanted:
            yield f"effects that nobody wanted: {sorted(strange)[:20]}"
        if several := {path: found for path, found in keys.items() if len(found) > 1}:
            yield f"effects with several keys: {dict(list(several.items())[:5])}"
        # What was in hand at a kill may have been called already; more than that was not.
        hands = sum(isinstance(name, str) for name in self._installed.programs if name.startswith("worker")) * SLOTS
        most = len(self.outcome.kills) * (hands + 4 * _FRAME)
        if len(calls) - len(wanted) > most:
            yield f"{len(calls)} calls for {len(wanted)} effects, more than {most} too many"

    def _left_over(self) -> Iterator[str]:
        rows = self._installed.postgres.rows

        def is_clean() -> bool:
            return not (self._leases() or rows("SELECT 1 FROM outbox WHERE status = 'PENDING' LIMIT 1"))

        self._await(is_clean, 60.0)
        if leases := self._leases():
            yield f"leases are left: {leases[:10]}"
        if pending := rows("SELECT count(*) FROM outbox WHERE status = 'PENDING'")[0][0]:
            yield f"{pending} events are not published"
        if commands := rows("SELECT count(*) FROM command WHERE status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')")[0][
            0
        ]:
            yield f"{commands} commands are stuck"
        if not self._await(lambda: self._depth() == (0, 0), 60.0):
            yield f"the queue is not empty: {self._depth()}"
        self.outcome.events = rows("SELECT count(*) FROM event_log")[0][0]

    def _leases(self) -> list[tuple[Any, ...]]:
        return self._installed.postgres.rows("SELECT name, owner FROM lease WHERE name LIKE 'command/%'")

    def _depth(self) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            async with connect(self._installed.nats.url) as connection:
                found = await NatsCommandQueue(connection).depth("shared")
                return found.waiting, found.leased

        return asyncio.run(ask())

    def _unproven(self) -> Iterator[str]:
        began = time.monotonic()
        process = self._installed.home.start("verify", "--all", "--json", env=self._installed.environment)
        said, complaint = process.communicate(timeout=600)
        self.outcome.verify_seconds = time.monotonic() - began
        if not said:
            yield f"verify said nothing: {complaint.decode()[-1000:]}"
            return
        found = json.loads(said)
        self.outcome.verified = found["verified"]
        if process.returncode != 0 or not found["ok"]:
            bad = [one for one in found["results"] if not one["ok"]]
            yield f"verify: {json.dumps(found['ledger'])[:300]} {json.dumps(bad)[:2000]}"

    # --- Evidence

    def save(self, place: Path) -> None:
        """What is needed to understand a run that failed: logs, calls, and the events of what has not ended."""
        place.mkdir(parents=True, exist_ok=True)
        (place / "outcome.json").write_text(json.dumps(self.outcome.document(), indent=1))
        (place / "calls.json").write_text(json.dumps(self._outside.made))
        (place / "ids.json").write_text(json.dumps({n: (self._shapes[n], one) for n, one in self.ids.items()}))
        for log in [*self._installed.place.glob("*.log"), *self._installed.place.glob("*/logs/*.log")]:
            shutil.copy(log, place / f"{log.parent.parent.name}-{log.parent.name}-{log.name}")
        rows = self._installed.postgres.rows
        for execution_id, *_ in self._open():
            if execution_id != "unknown":
                found = rows(
                    "SELECT position, stream_id, event_type, node_name, command_id, status, ingest_time, payload "
                    f"FROM event_log WHERE execution_id = {int(execution_id)} ORDER BY position"
                )
                (place / f"{execution_id}.txt").write_text("\n".join(map(str, found)))
        self._say(f"what is needed to understand it is in {place}")


def _book(name: str, workflow: list[dict[str, Any]]) -> dict[str, Any]:
    for place, step in enumerate(workflow[:-1]):
        step.setdefault("next", {"arcs": [{"step": workflow[place + 1]["step"]}]})
    about = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name, "path": f"chaos/{name}"}}
    return {**about, "workload": {"n": 0}, "workflow": workflow}
