"""Scripts from where they are kept."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noetl.errors import AccessRefused, InvalidInput, NotFound, Unavailable
from noetl.payloads.resolver import Caller, Resolver, TooLarge
from noetl.tools.base import Call, Outcome
from noetl.tools.scripts import MAX_SCRIPT_BYTES, load, load_rendered

PAGES = {"/job.py": (200, "text/x-python", b"result = {{ n }}"), "/data": (200, "application/json", b"{}")}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.seen = dict(self.headers)  # type: ignore[attr-defined] # for the test to look at
        status, kind, body = PAGES.get(self.path) or (int(self.path[1:]), "text/plain", b"")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[http.server.HTTPServer]:
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def url(server: http.server.HTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def call(directory: Path = Path(), **more: Any) -> Call:
    return Call(kind="python", directory=directory, **more)


def refused(loaded: str | Outcome) -> tuple[str, str, bool]:
    assert isinstance(loaded, Outcome)
    assert loaded.error is not None
    return loaded.error["kind"], loaded.error["code"], loaded.error["retryable"]


async def test_an_inline_script_is_its_text_and_is_not_rendered_again() -> None:
    script = {"source": {"type": "inline", "code": "x = '{{ n }}'"}}
    assert await load_rendered(script, call(input={"n": 1})) == "x = '{{ n }}'"
    assert refused(await load({"source": {"type": "inline"}}, call()))[:2] == ("schema", "FIELD_MISSING")


@pytest.mark.parametrize(
    "script",
    [
        {"uri": "jobs/load.py", "source": {"type": "file"}},
        {"source": {"type": "file", "path": "jobs/load.py"}},
        {"uri": "jobs/load.py"},
        {"uri": "file:jobs/load.py"},
        {"uri": "file://jobs/load.py"},
        "jobs/load.py",
    ],
)
async def test_a_file_is_found_from_the_directory_of_the_call(tmp_path: Path, script: Any) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "load.py").write_text("result = 'ä'")
    assert await load(script, call(tmp_path)) == "result = 'ä'"


async def test_loaded_text_is_rendered_as_code(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("result = [{{ n }}, '{{ region }}', '{{ page }}']")
    context = {"workload": {"region": "eu"}, "ctx": {"page": 3}}
    rendered = await load_rendered({"uri": "a.py"}, call(tmp_path, input={"n": 1}, told=lambda: context))
    assert rendered == "result = [1, 'eu', '3']"


async def test_text_that_is_no_template_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = '{{ missing }} {% nonsense'")
    assert await load_rendered({"uri": "a.py"}, call(tmp_path)) == "x = '{{ missing }} {% nonsense'"


async def test_a_file_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(MAX_SCRIPT_BYTES + 1)
    assert refused(await load("gone.py", call(tmp_path))) == ("not_found", "SCRIPT_NOT_FOUND", False)
    assert refused(await load(".", call(tmp_path)))[:2] == ("storage_access", "SCRIPT_NOT_READABLE")
    assert refused(await load("binary", call(tmp_path)))[:2] == ("storage_access", "SCRIPT_NOT_TEXT")
    assert refused(await load("huge", call(tmp_path)))[:2] == ("storage_access", "SCRIPT_TOO_LARGE")
    assert refused(await load({"source": {"type": "file"}}, call(tmp_path)))[:2] == ("schema", "FIELD_MISSING")


async def test_a_script_comes_over_http(server: http.server.HTTPServer, url: str, tmp_path: Path) -> None:
    source = {"type": "http", "headers": {"X-Team": "data"}, "auth": {"token": "t0ken"}}
    script = {"uri": f"{url}/job.py", "source": source}
    assert await load_rendered(script, call(tmp_path, input={"n": 4})) == "result = 4"
    seen = server.seen  # type: ignore[attr-defined] # the handler puts it there
    assert (seen["X-Team"], seen["Authorization"]) == ("data", "Bearer t0ken")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/404", ("not_found", "SCRIPT_NOT_FOUND", False)),
        ("/403", ("storage_access", "SCRIPT_NOT_READABLE", False)),
        ("/503", ("storage_access", "SCRIPT_NOT_READABLE", True)),
        ("/data", ("storage_access", "SCRIPT_NOT_TEXT", False)),
    ],
)
async def test_an_answer_that_is_no_script(
    url: str, path: str, expected: tuple[str, str, bool], tmp_path: Path
) -> None:
    assert refused(await load({"uri": url + path}, call(tmp_path))) == expected


async def test_a_server_that_is_not_there(server: http.server.HTTPServer, tmp_path: Path) -> None:
    script = {"uri": "http://127.0.0.1:1/x.py", "source": {"type": "http", "timeout": 5}}
    assert refused(await load(script, call(tmp_path))) == ("storage_access", "SCRIPT_NOT_READABLE", True)
    blocked = {"uri": "http://169.254.169.254/latest", "source": {"type": "http"}}
    assert refused(await load(blocked, call(tmp_path)))[0] == "storage_access"


class Shelf:
    """A scheme with scripts on it; it remembers who asked for what."""

    def __init__(self, found: Any) -> None:
        self.found = found
        self.asked: list[tuple[str, Caller]] = []

    async def read(self, uri: str, caller: Caller, *, limit: int) -> Any:
        self.asked.append((uri, caller))
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def shelved(found: Any) -> tuple[Shelf, Call]:
    shelf: Any = Shelf(found)
    schemes = ("s3", "gs", "gcs", "az", "abfs", "noetl")
    return shelf, call(auth={"type": "postgres"}, resolver=Resolver(dict.fromkeys(schemes, lambda: shelf)))


@pytest.mark.parametrize(
    ("script", "address"),
    [
        ({"uri": "s3://b/k.py"}, "s3://b/k.py"),
        ({"uri": "gcs://b/k.py"}, "gcs://b/k.py"),
        ({"uri": "abfs://c@a.dfs.core.windows.net/k.py"}, "abfs://c@a.dfs.core.windows.net/k.py"),
        ({"uri": "noetl://t/p/payloads/sha256/x"}, "noetl://t/p/payloads/sha256/x"),
        ({"source": {"type": "gcs", "path": "b/k.py"}}, "gs://b/k.py"),
        ({"source": {"type": "s3", "path": "/b/k.py"}}, "s3://b/k.py"),
    ],
)
async def test_an_object_is_read_by_its_address(script: Any, address: str) -> None:
    shelf, asking = shelved(b"result = 1")
    assert await load(script, asking) == "result = 1"
    assert shelf.asked[0][0] == address


async def test_a_source_has_a_credential_of_its_own_and_says_where_its_store_is() -> None:
    shelf, asking = shelved(b"x")
    source = {"auth": {"type": "s3"}, "region": "eu-north-1", "endpoint": "https://store", "method": "GET"}
    await load({"uri": "s3://b/k.py", "source": source}, asking)
    await load({"uri": "s3://b/k.py"}, asking)
    assert [(caller.auth, caller.options) for _, caller in shelf.asked] == [
        ({"type": "s3"}, {"region": "eu-north-1", "endpoint": "https://store"}),
        (None, {}),
    ]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (NotFound("gone"), ("not_found", "SCRIPT_NOT_FOUND", False)),
        (AccessRefused("no"), ("storage_access", "SCRIPT_NOT_READABLE", False)),
        (InvalidInput("what"), ("storage_access", "SCRIPT_NOT_READABLE", False)),
        (Unavailable("away"), ("storage_access", "SCRIPT_NOT_READABLE", True)),
        (TimeoutError(), ("storage_access", "SCRIPT_NOT_READABLE", True)),
        (TooLarge("huge"), ("storage_access", "SCRIPT_TOO_LARGE", False)),
        (b"\xff\xfe", ("storage_access", "SCRIPT_NOT_TEXT", False)),
        ({"a": 1}, ("storage_access", "SCRIPT_NOT_TEXT", False)),
    ],
)
async def test_an_object_that_cannot_be_loaded(found: Any, expected: tuple[str, str, bool]) -> None:
    assert refused(await load({"uri": "s3://b/k.py"}, shelved(found)[1])) == expected


async def test_objects_need_an_address_and_a_resolver() -> None:
    assert refused(await load({"source": {"type": "gcs"}}, shelved(b"")[1]))[1] == "FIELD_MISSING"
    assert refused(await load({"uri": "s3://b/k.py"}, call()))[1] == "KIND_UNAVAILABLE"


async def test_an_unknown_source_is_refused() -> None:
    assert refused(await load({"source": {"type": "ftp"}}, call()))[:2] == ("schema", "FIELD_INVALID")
