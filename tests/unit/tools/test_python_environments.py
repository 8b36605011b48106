"""`deps`: the interpreter and the packages of a python task."""

from __future__ import annotations

import sys
import venv
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noetl.tools.base import Outcome
from noetl.tools.python.tool import PythonTool
from tests.unit.tools.python_calls import call, running


@pytest.fixture
async def tool(tmp_path: Path) -> AsyncIterator[PythonTool]:
    async with running(workers=1, cache=tmp_path / "cache") as made:
        yield made


def wheel(directory: Path, name: str, code: str) -> Path:
    """A package that can be installed without a network."""
    path = directory / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", code)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return path


def refused(outcome: Outcome) -> tuple[str, str]:
    assert outcome.error is not None, outcome
    return outcome.error["kind"], outcome.error["code"]


async def test_directories_are_added_to_the_import_path(tool: PythonTool, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "tariffs.py").write_text("RATE = 7")
    deps = {"sys_path": ["lib"]}
    code = "import tariffs\nresult = tariffs.RATE"
    assert (await tool.run(call(code, fields={"deps": deps}, directory=tmp_path))).result == 7
    without = await tool.run(call(code, directory=tmp_path))
    assert refused(without) == ("transform", "PY_ModuleNotFoundError")


async def test_an_environment_of_the_user_runs_the_code_without_ours(tool: PythonTool, tmp_path: Path) -> None:
    venv.create(tmp_path / "own", with_pip=False, symlinks=True)
    code = """
import sys
try:
    import msgspec
    ours = True
except ImportError:
    ours = False
result = [sys.prefix, ours, sorted(name for name in sys.modules if name.partition('.')[0] == 'noetl') == []]
"""
    outcome = await tool.run(call(code, fields={"deps": {"venv_path": "own"}}, directory=tmp_path))
    assert outcome.result[:2] == [str(tmp_path / "own"), False]


async def test_processes_of_different_environments_take_turns(tool: PythonTool, tmp_path: Path) -> None:
    venv.create(tmp_path / "own", with_pip=False, symlinks=True)
    code = "import sys\nresult = sys.prefix"
    own: dict[str, Any] = {"deps": {"venv_path": str(tmp_path / "own")}}
    found = [(await tool.run(call(code, fields=fields))).result for fields in (own, {}, own)]
    assert found == [str(tmp_path / "own"), sys.prefix, str(tmp_path / "own")]


async def test_packages_are_installed_once_and_kept(
    tool: PythonTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    package = wheel(tmp_path, "greeting", "def greet(): return 'hello'")
    fields = {"deps": {"packages": [str(package)]}}
    code = "import greeting\nresult = greeting.greet()"
    assert (await tool.run(call(code, fields=fields))).result == "hello"
    package.unlink()
    async with running(workers=1, cache=tmp_path / "cache") as another:
        assert (await another.run(call(code, fields=fields))).result == "hello"


async def test_packages_that_cannot_be_installed_say_why(
    tool: PythonTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    outcome = await tool.run(call("result = 1", fields={"deps": {"packages": ["no-such-package-here"]}}))
    assert refused(outcome) == ("transform", "DEPS_FAILED")
    assert outcome.error is not None
    assert "no-such-package-here" in outcome.error["message"]


@pytest.mark.parametrize(
    ("deps", "kind", "code"),
    [
        ({"venv_path": "nowhere"}, "not_found", "VENV_NOT_FOUND"),
        ({"venv_path": "x", "packages": ["y"]}, "schema", "FIELD_INVALID"),
        ({"packages": ["--index-url=http://example.com"]}, "schema", "FIELD_INVALID"),
        ({"sys_path": 7}, "schema", "FIELD_INVALID"),
    ],
)
async def test_deps_that_make_no_sense_are_refused(
    tool: PythonTool, deps: dict[str, Any], kind: str, code: str
) -> None:
    assert refused(await tool.run(call("result = 1", fields={"deps": deps}))) == (kind, code)


async def test_an_interpreter_that_cannot_start_is_an_error(tool: PythonTool, tmp_path: Path) -> None:
    (tmp_path / "bad" / "bin").mkdir(parents=True)
    (tmp_path / "bad" / "bin" / "python").write_text("not a program")
    outcome = await tool.run(call("result = 1", fields={"deps": {"venv_path": "bad"}}, directory=tmp_path))
    assert refused(outcome) == ("transform", "PY_WorkerDied")
