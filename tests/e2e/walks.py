"""What a stranger asks of every operation of the API, with everything that it has heard of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx

from tests.e2e.strangers import MARK, Estate, Operation, operations

__all__ = ["ABOUT_THEMSELVES", "REFUSALS", "requests_for", "walk"]

REFUSALS = frozenset({401, 403, 404})
ABOUT_THEMSELVES = frozenset(
    {
        "GET /health", "GET /api/health", "GET /api/health/ready", "GET /openapi.json", "GET /api/schedules",
        "GET /api/executions", "GET /api/stream", "GET /api/archives",
        "POST /api/executions/cleanup", "POST /api/catalog/register", "POST /api/catalog/list", "POST /api/credentials",
        "GET /api/credentials", "POST /api/execute/batch",
    }
)  # fmt: skip
"""Where nothing of anybody else can be named: the answer is about the caller's own, whoever that is."""
_ENDLESS = "GET /api/stream"
_WORK = ("/api/commands/", "/api/credentials/resolve", "/api/worker/")


def requests_for(operation: Operation, estate: Estate) -> Iterator[dict[str, Any]]:
    """Everything that a stranger would try there, as arguments of a client."""
    known = estate.known
    path = _filled(operation.path, known)
    queries: list[dict[str, str]] = [{}]
    if operation.path.endswith("/resolve") and operation.method == "GET":
        queries = [{"ref": known[name]} for name in ("payload", "result", "older")]
        queries.append({"ref": known["payload"].replace("noetl://acme/", "noetl://globex/")})
    elif operation.path in ("/api/replay/state", "/api/aggregate/loop/results"):
        queries = [{"execution_id": known["execution_id"], "step": known["step"]}]
    elif (
        operation.path in ("/api/credentials/{name}", "/api/keychain/{catalog_id}/{name}") and operation.method == "GET"
    ):
        queries = [{}, {"include_data": "true"}]
    elif operation.path == "/api/executions":
        queries = [{}, {"path": known["path"]}, {"parent_execution_id": known["execution_id"]}]
    for query in queries:
        for body in _bodies(operation, estate):
            sent = {} if body is None else {"json": body}
            yield {"method": operation.method, "url": path, "params": query, **sent}


def _filled(path: str, known: dict[str, str]) -> str:
    named = {**known, "name": known["key"] if "/keychain/" in path else known["name"]}
    if "/vars/" in path:
        named["name"] = known["variable"]
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: named[found[1]], path)


def _bodies(operation: Operation, estate: Estate) -> list[Any]:
    if operation.method in ("GET", "DELETE"):
        return [None]
    known = estate.known
    path, execution_id = operation.path, known["execution_id"]
    if path.startswith(_WORK):
        asked = {"tenant_id": "acme", "organization_id": "retail", "execution_id": int(execution_id), "worker_id": "w"}
        return [{**asked, "command_id": int(known["command_id"]), "alias": known["name"]}]
    bodies: dict[str, list[Any]] = {
        "/api/execute": [
            {"path": known["path"]}, {"catalog_id": known["catalog_id"]},
            {"path": known["path"], "parent_execution_id": execution_id},
            {"path": known["path"], "idempotency_key": known["idempotency_key"]},
        ],
        "/api/events/batch": [{"events": estate.history}],
        "/api/execute/batch": [{"items": [{"path": known["path"]}, {"catalog_id": known["catalog_id"]}]}],
        "/api/executions/cleanup": [{"older_than_minutes": 0}],
        "/api/executions/{execution_id}/finalize": [{"status": "FAILED", "reason": "mine now"}],
        "/api/executions/{execution_id}/retry": [{}, {"step": known["step"], "force": True}],
        "/api/vars/{execution_id}": [{"variables": {"mine": 1}}],
        "/api/context/render": [{"execution_id": execution_id, "template": "{{ workload }} {{ ctx }}"}],
        "/api/catalog/register": [{"content": "kind: Playbook"}],
        "/api/catalog/list": [{}, {"prefix": known["path"][:5]}],
        "/api/catalog/resource": [
            {"path": known["path"]}, {"path": known["path"], "version": 1}, {"catalog_id": known["catalog_id"]},
        ],
        "/api/schedules": [{"name": "of-mine", "playbook": known["path"], "cron": "0 6 * * *"}],
        "/api/credentials": [{"name": "of-mine", "type": "bearer", "data": {"token": "t-o-k-e-n"}}],
        "/api/keychain/{catalog_id}/{name}": [{"data": {"token": "mine"}}],
    }  # fmt: skip
    return bodies.get(path, [{}])


async def walk(estate: Estate, stranger: httpx.AsyncClient, *, has_a_twin: bool = False, only: str = "") -> list[str]:
    """Ask everything; what was wrong with the answers, one line for each.

    A stranger with an execution of the same id may be answered about that one, so only the mark tells then. `only` is
    an expression for the paths that are asked.
    """
    wrong = []
    for operation in operations(estate.app):
        if str(operation) == _ENDLESS or not re.search(only, operation.path):
            continue
        for asked in requests_for(operation, estate):
            answer = await stranger.request(**asked)
            where = f"{operation} {asked.get('params') or ''} {asked.get('json') or ''}: {answer.status_code}"
            if _tells(answer, str(asked), estate.known):
                wrong.append(f"{where} tells: {answer.text[:300]}")
            elif answer.status_code >= 500:
                wrong.append(f"{where} is a fault: {answer.text[:300]}")
            elif str(operation) not in ABOUT_THEMSELVES and not has_a_twin and answer.status_code not in REFUSALS:
                wrong.append(f"{where} is no refusal: {answer.text[:300]}")
    return wrong


def _tells(answer: httpx.Response, asked: str, known: dict[str, str]) -> bool:
    """Whether the mark is in the answer more than as an echo of the question."""
    text = answer.text + str(answer.headers)
    for heard in sorted((value for value in known.values() if value in asked), key=len, reverse=True):
        text = text.replace(heard, "")
    return MARK in text
