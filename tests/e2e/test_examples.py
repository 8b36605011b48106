"""Every example runs, and gives what it says."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.e2e.cli import PROJECT_ROOT, Home

EXAMPLES = PROJECT_ROOT / "examples"
# Example, its arguments, how it ends, and its result.
EXPECTED: list[tuple[str, tuple[str, ...], str, Any]] = [
    ("01_hello", (), "COMPLETED", {"greeting": "Hello, world!"}),
    ("01_hello", ("who=you",), "COMPLETED", {"greeting": "Hello, you!"}),
    ("02_branching", (), "COMPLETED", {"decision": "review", "amount": 120}),
    ("02_branching", ("amount=50",), "COMPLETED", {"decision": "approved", "amount": 50}),
    ("02_branching", ("amount=-1",), "COMPLETED", {"decision": "refused", "why": "negative amount"}),
    ("03_fan_out_and_join", (), "COMPLETED", {"total": 108.0}),
    ("03_fan_out_and_join", ("pieces=2", "member=false"), "COMPLETED", {"total": 80.0}),
    ("04_loop", (), "COMPLETED", {"letters": 15, "words": ["pear", "fig", "plum", "kiwi"], "failed": 1}),
    ("04_loop", ('words=["a", "bc"]',), "COMPLETED", {"letters": 3, "words": ["a", "bc"], "failed": 0}),
    ("05_pipeline_with_retry", (), "COMPLETED", {"message": "42, after 3 tries", "tries": 3}),
    ("06_sub_playbook", (), "COMPLETED", {"sum": 29}),
    ("06_sub_playbook", ("numbers=[5, 6]",), "COMPLETED", {"sum": 61}),
    ("07_failure_and_final_step", (), "FAILED", {"released": "R-1", "billed": False}),
    ("07_failure_and_final_step", ("stock=5",), "COMPLETED", {"released": "R-1", "billed": True}),
    ("08_shell_and_files", (), "COMPLETED", {"rows": 3, "pieces": 18}),
    ("10_files_to_report", (), "COMPLETED", {"report": "report.md", "best": "ada"}),
    ("10_files_to_report", ("most_bad=0",), "FAILED", {"report": None, "best": None}),
    ("10_files_to_report", ("inbox=home",), "COMPLETED", {"report": None, "best": None}),
    (
        "12_large_table",
        (),
        "COMPLETED",
        {"rows": 5000000, "columns": 5, "best": {"customer": "customer-979", "orders": 4882, "total": 51885896}},
    ),
    (
        "12_large_table",
        ("rows=1000",),
        "COMPLETED",
        {"rows": 1000, "columns": 5, "best": {"customer": "customer-991", "orders": 1, "total": 15956}},
    ),
    ("13_object_storage", (), "COMPLETED", {"days": 3, "total": 42}),
    (
        "15_fanout",
        (),
        "COMPLETED",
        {"best": {"region": "west", "orders": 494, "tax": 503643}, "frames": 4, "rows": 1979},
    ),
    (
        "17_transfer",
        (),
        "COMPLETED",
        {"orders": 2500, "total": 125137.5, "first": "00037", "moved": 2500, "parts": 3},
    ),
]


@pytest.fixture(scope="module")
def used_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """One home for all of them, as somebody who tries them has it."""
    return Home(tmp_path_factory.mktemp("examples") / "home")


@pytest.mark.parametrize(("name", "values", "status", "result"), EXPECTED)
def test_an_example_gives_what_it_says(
    name: str, values: tuple[str, ...], status: str, result: Any, used_home: Home
) -> None:
    arguments = [argument for value in values for argument in ("--set", value)]
    ended = used_home.run("run", EXAMPLES / f"{name}.yaml", *arguments, "--json")
    assert (ended.document["status"], ended.document["result"]) == (status, result)
    assert ended.code == (0 if status == "COMPLETED" else 1)
    assert used_home.run("verify", ended.document["execution_id"]).code == 0


def numbered() -> list[Path]:
    return sorted(EXAMPLES.glob("[0-9][0-9]_*.yaml"))


def test_no_example_is_forgotten() -> None:
    run_here = {name for name, *_ in EXPECTED}
    own_tests = {path.stem for path in numbered() if path.stem not in run_here and not _needs_nothing(path)}
    assert {path.stem for path in numbered()} - own_tests == run_here


def _needs_nothing(path: Path) -> bool:
    """An example that needs a service of its own says so in its comment, and is run where that service is."""
    return "needs:" not in path.read_text(encoding="utf-8").partition("apiVersion")[0]


@pytest.mark.parametrize("path", numbered(), ids=lambda path: path.stem)
def test_an_example_opens_with_what_it_shows_and_how_to_run_it(path: Path) -> None:
    comment = path.read_text(encoding="utf-8").partition("apiVersion")[0]
    assert all(line.startswith("#") for line in comment.splitlines())
    assert f"noetl run examples/{path.name}" in comment


def test_examples_are_valid_without_a_warning(used_home: Home) -> None:
    assert used_home.run("validate", "--strict", EXAMPLES).code == 0


class _Shop(BaseHTTPRequestHandler):
    """Serves the example's orders to those who have the token."""

    token = "a-token-of-the-shop"

    def do_GET(self) -> None:
        known = self.headers["Authorization"] == f"Bearer {self.token}"
        self.send_response(200 if known else 401)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write((EXAMPLES / "site/orders.json").read_bytes() if known else b"{}")

    def log_message(self, *_: Any) -> None:
        """The output of a test run is for the tests."""


@pytest.fixture
def shop() -> Iterator[str]:
    """The address of a server that wants a token."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Shop) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


@pytest.mark.parametrize(
    ("token", "result"),
    [
        (_Shop.token, {"orders": 3, "total": 240}),
        ("of-somebody-else", {"refused": "HTTP_401", "hint": "noetl credential add shop --replace"}),
    ],
)
def test_the_example_with_a_credential_sends_it_and_shows_it_to_nobody(
    token: str, result: Any, shop: str, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home")
    secret = tmp_path / "secret.yaml"
    secret.write_text(f"token: {token}\n")
    assert home.run("credential", "add", "shop", "--type", "bearer", "--file", secret).code == 0
    secret.unlink()
    ended = home.run("run", EXAMPLES / "09_http_and_credentials.yaml", "--set", f"api={shop}", "--json")
    assert (ended.document["status"], ended.document["result"]) == ("COMPLETED", result)
    assert token not in home.run("events", ended.document["execution_id"], "--json").stdout
