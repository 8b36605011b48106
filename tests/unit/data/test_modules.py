"""The user's modules: each task has its own, and nothing of them stays in this process."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from noetl.data.code import call_main
from noetl.data.modules import UserModules, names_used


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / f"{name.replace('__', '/', 1) if not name.startswith('__') else name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def run(code: str, root: Path) -> object:
    return call_main(f"def main(spark):\n    {code}", "a.b", {"spark": None}, [root])


def test_two_directories_have_modules_of_the_same_name(tmp_path: Path) -> None:
    for name, answer in (("a", 1), ("b", 2)):
        write(
            tmp_path / name, helpers=f"import deeper\nANSWER = {answer} + deeper.MORE\n", deeper=f"MORE = {answer}0\n"
        )
    assert run("import helpers; return helpers.ANSWER", tmp_path / "a") == 11
    assert run("from helpers import ANSWER; return ANSWER", tmp_path / "b") == 22
    assert "helpers" not in sys.modules
    assert not [place for place in sys.path if place.startswith(str(tmp_path))]
    assert not list(tmp_path.rglob("__pycache__"))


def test_what_was_edited_a_moment_ago_is_seen(tmp_path: Path) -> None:
    for answer in (1, 2):
        write(tmp_path, helpers=f"ANSWER = {answer}\n")
        assert run("import helpers; return helpers.ANSWER", tmp_path) == answer


def test_packages_and_relative_imports(tmp_path: Path) -> None:
    write(
        tmp_path,
        tools____init__="from .rates import RATE\nfrom . import more\n",
        tools__rates="from .more import TWO\nRATE = TWO * 2\n",
        tools__more="TWO = 2\n",
        tools__late="THREE = 3\n",
    )
    assert run("import tools.late as late, tools; return tools.RATE, late.THREE, tools.more.TWO", tmp_path) == (4, 3, 2)
    assert run("from tools import late; return late.THREE", tmp_path) == 3


def test_what_python_has_goes_first_and_what_is_not_there_is_said(tmp_path: Path) -> None:
    write(tmp_path, json="dumps = None\n", tools____init__="")
    (tmp_path / "pyarrow").mkdir()  # a directory without code is no module
    assert run("import json; return json.dumps([1])", tmp_path) == "[1]"
    assert run("import pyarrow; return pyarrow.int8 is not None", tmp_path) is True
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        run("import nowhere", tmp_path)
    with pytest.raises(ModuleNotFoundError, match=r"tools\.nowhere"):
        run("import tools.nowhere", tmp_path)


def test_a_module_that_breaks_is_tried_again_and_names_its_line(tmp_path: Path) -> None:
    write(tmp_path, helpers="ONE = 1\nraise ValueError('no')\n")
    with pytest.raises(ValueError, match="no") as caught:
        run("import helpers", tmp_path)
    assert str(caught.traceback[-1].path) == str(tmp_path / "helpers.py")
    assert caught.traceback[-1].lineno == 1


def test_modules_that_functions_use_are_imported_where_these_run(tmp_path: Path) -> None:
    write(tmp_path, helpers="import threading\nLOCK = threading.Lock()\n")
    scope = {"__builtins__": UserModules([tmp_path]).builtins}
    exec("import helpers", scope)
    carried = pickle.dumps(scope["helpers"])  # though its lock could not be
    assert b"import_module" in carried
    assert b"helpers" in carried


def test_only_what_code_names_is_carried(tmp_path: Path) -> None:
    write(tmp_path, helpers="import deeper\n", deeper="", other="", json="", tools____init__="import other\n")
    (tmp_path / "data").mkdir()
    assert names_used("def main(spark, data): return 1", tmp_path) == frozenset()
    assert names_used("import helpers, json", tmp_path) == {"helpers", "deeper"}
    assert names_used("importlib.import_module('tools')", tmp_path) == {"tools", "other"}
    assert names_used("import helpers", tmp_path / "nowhere") == frozenset()
