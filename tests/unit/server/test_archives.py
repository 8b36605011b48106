"""Archives over HTTP."""

from __future__ import annotations

from pathlib import Path

from noetl.archive.bundle.checking import check_bundle
from noetl.ports.cursors import write_cursor
from noetl.runtime.archiving.places import open_uri
from noetl.settings import Settings
from tests.unit.server.api import Api, book, step
from tests.unit.server.hall import HELLO, open_hall

REPORT = book(step("start"), path="reports/daily")


async def test_an_execution_is_archived_once(api: Api) -> None:
    execution_id = await api.run(REPORT)
    made = await api.post(f"/executions/{execution_id}/archive")
    assert (made["execution_id"], made["created"]) == (execution_id, True)
    objects, prefix = await open_uri(made["uri"], Settings())
    found = await check_bundle(objects, prefix)
    assert (found.problems, found.events, found.manifest_sha256) == ([], made["events"], made["manifest_sha256"])
    again = await api.post(f"/executions/{execution_id}/archive")
    assert again == {**made, "created": False}


async def test_archives_are_listed_page_by_page(api: Api) -> None:
    ids = [await api.run(REPORT) for _ in range(3)]
    for execution_id in ids:
        await api.post(f"/executions/{execution_id}/archive")
    first = await api.get("/archives", limit=2)
    rest = await api.get("/archives", limit=2, cursor=first["next_cursor"])
    assert [one["execution_id"] for one in [*first["archives"], *rest["archives"]]] == ids
    assert rest["next_cursor"] is None
    assert (await api.get("/archives", limit=3))["next_cursor"] is None
    for nonsense in ("nonsense", write_cursor("execution/x")):
        await api.get("/archives", 422, cursor=nonsense)


async def test_what_is_not_there_cannot_be_archived(api: Api) -> None:
    problem = await api.post("/executions/7/archive", status=404)
    assert "execution" in problem["detail"]


async def test_who_may_archive_and_who_may_look(tmp_path: Path) -> None:
    async with open_hall(tmp_path, tokens=True) as hall:
        clients = {}
        for role in ("reader", "operator", "admin"):
            token, _ = await hall.token(role, name=role)
            clients[role] = await hall.client({"authorization": f"Bearer {token}"})
        assert (await clients["admin"].post("/api/catalog/register", json={"content": HELLO})).status_code == 200
        started = await clients["operator"].post("/api/execute", json={"path": "guide/hello"})
        assert (await clients["reader"].post("/api/executions/7/archive")).status_code == 403
        assert (await clients["reader"].get("/api/archives")).status_code == 403
        assert (await clients["admin"].get("/api/archives")).json() == {"archives": [], "next_cursor": None}
        token, _ = await hall.token("admin", tenant="globex", name="other")
        stranger = await hall.client({"authorization": f"Bearer {token}"})
        execution_id = started.json()["execution_id"]
        assert (await stranger.post(f"/api/executions/{execution_id}/archive")).status_code == 404
