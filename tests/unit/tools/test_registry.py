"""Which kinds there are, what is missing for the others, and tools of users' own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from noetl.tools import registry as module
from noetl.tools.base import Call, Outcome, ok
from noetl.tools.noop import NoopTool
from noetl.tools.registry import BUILT_IN, INTERPRETED, UNAVAILABLE, Registry, tool


@pytest.fixture(autouse=True)
def no_leftovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test begins without users' tools."""
    monkeypatch.setattr(module, "_user_tools", {})
    monkeypatch.setattr(module, "_entry_points", dict)


def installed(monkeypatch: pytest.MonkeyPatch, **points: str) -> None:
    found = {name: EntryPoint(name, value, module.ENTRY_POINTS) for name, value in points.items()}
    monkeypatch.setattr(module, "_entry_points", lambda: found)


async def test_a_kind_that_is_on_the_way_says_what_it_needs() -> None:
    outcome = await Registry().run(Call(kind="spark"))
    assert outcome.error is not None
    assert (outcome.error["kind"], outcome.error["code"]) == ("unknown", "KIND_UNAVAILABLE")
    reason = "it needs the driver of a session; executors of Spark have none"
    assert outcome.error["message"] == f"kind 'spark' cannot run here: {reason}"


async def test_a_kind_that_another_room_brings_is_made_when_it_is_first_called() -> None:
    made: list[NoopTool] = []

    def make() -> NoopTool:
        made.append(NoopTool())
        return made[-1]

    registry = Registry(makers={"spark": make})
    assert registry.why_not("spark") is None
    assert made == []
    for _ in range(2):
        assert (await registry.run(Call(kind="spark"))).error is None
    assert len(made) == 1


async def test_a_kind_that_is_switched_off_names_the_setting() -> None:
    registry = Registry(disabled={"noop": "it is switched off by the setting tools.noop"})
    outcome = await registry.run(Call(kind="noop"))
    assert outcome.error is not None
    assert outcome.error["message"] == "kind 'noop' cannot run here: it is switched off by the setting tools.noop"
    assert registry.why_not("noop") == "it is switched off by the setting tools.noop"


@pytest.mark.parametrize("kind", [*BUILT_IN, *sorted(INTERPRETED)])
def test_what_is_built_in_can_run(kind: str) -> None:
    assert Registry().why_not(kind) is None


@pytest.mark.parametrize("kind", [*UNAVAILABLE, "teleport"])
def test_what_is_not_here_says_why(kind: str) -> None:
    assert (Registry().why_not(kind) or "").startswith("it needs ")


@pytest.mark.parametrize("kind", BUILT_IN)
async def test_a_call_without_what_the_kind_requires_is_field_missing(kind: str) -> None:
    registry = Registry()
    found = registry.find(kind)
    assert found is not None
    outcome = await registry.run(Call(kind=kind))
    assert bool(found.required) == (outcome.error is not None and outcome.error["code"] == "FIELD_MISSING")
    await registry.close()


@pytest.mark.parametrize("kind", BUILT_IN)
def test_side_effects_are_those_of_the_language_reference(kind: str) -> None:
    registry = Registry()
    assert registry.side_effecting(kind, {}) == (kind != "noop")
    if kind == "artifact":
        assert not registry.side_effecting(kind, {"action": "get"})
        assert registry.side_effecting(kind, {"action": "put"})


async def test_a_function_is_a_tool() -> None:
    @tool("greet", side_effecting=False)
    def greet(name: str, mark: str = "!") -> str:
        return f"hello {name}{mark}"

    registry = Registry()
    assert await registry.run(Call(kind="greet", input={"name": "Ada"})) == ok("hello Ada!")
    assert not registry.side_effecting("greet", {})
    assert list(registry.user_kinds()) == ["greet"]
    assert "greet" in registry.user_kinds()
    assert len(registry.user_kinds()) == 1


async def test_a_coroutine_function_too() -> None:
    @tool("later")
    async def later(n: int) -> int:
        return n + 1

    assert await Registry().run(Call(kind="later", input={"n": 1})) == ok(2)


@pytest.mark.parametrize(
    ("given", "kind", "code"),
    [
        ({}, "schema", "FIELD_INVALID"),
        ({"n": 0}, "transform", "PY_ZeroDivisionError"),
        ({"n": 1, "m": 2}, "schema", "FIELD_INVALID"),
    ],
)
async def test_what_a_function_cannot_do_is_the_error_of_its_task(given: dict[str, Any], kind: str, code: str) -> None:
    @tool("inverse")
    def inverse(n: int) -> float:
        return 1 / n

    outcome = await Registry().run(Call(kind="inverse", input=given))
    assert outcome.error is not None
    assert (outcome.error["kind"], outcome.error["code"]) == (kind, code)


async def test_an_entry_point_names_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, idle="noetl.tools.noop:NoopTool")
    registry = Registry()
    assert isinstance(registry.find("idle"), NoopTool)
    assert registry.why_not("idle") is None


async def test_an_entry_point_names_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, doubled="tests.unit.tools.own_tool:doubled")
    monkeypatch.delitem(sys.modules, "tests.unit.tools.own_tool", raising=False)
    assert await Registry().run(Call(kind="doubled", input={"n": 4})) == ok(8)


def test_packages_are_looked_through_only_for_kinds_that_nobody_knows() -> None:
    code = (
        "import importlib.metadata as metadata\n"
        "metadata.entry_points = lambda **_: 1 / 0\n"
        "from noetl.playbook.parse import parse\n"
        "from noetl.tools.registry import UserKinds\n"
        "text = '''apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a}\n"
        "workflow: [{step: a, tool: {kind: %s}}]'''\n"
        "assert parse(text % 'noop', kinds=UserKinds()).ok\n"
        "try:\n    parse(text % 'other', kinds=UserKinds())\n"
        "except ZeroDivisionError:\n    pass\nelse:\n    raise SystemExit('nobody looked')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class _Slow(NoopTool):
    """Waits for as long as it is let."""

    async def run(self, call: Call) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


class _Punctual(NoopTool):
    """Ends by itself when its time is over."""

    keeps_time = True

    async def run(self, call: Call) -> Outcome:
        assert call.timeout is not None
        await asyncio.sleep(call.timeout)
        return ok("I was late")


async def test_the_time_of_a_call_is_kept() -> None:
    with pytest.raises(TimeoutError):
        await Registry({"noop": _Slow()}).run_in_turn(Call(kind="noop", timeout=0.01))


async def test_a_tool_that_keeps_the_time_itself_has_the_last_word() -> None:
    said = await Registry({"noop": _Punctual()}).run_in_turn(Call(kind="noop", timeout=0.01))
    assert said.result == "I was late"
