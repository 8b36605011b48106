"""`import noetl`: what it offers, and that it costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import noetl

STUB = Path(noetl.__file__).with_suffix(".pyi")


def test_importing_it_loads_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import noetl; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) <= {"__future__", "noetl"}


def test_every_name_is_there_and_type_checkers_know_the_same_ones() -> None:
    for name in noetl.__all__:
        assert getattr(noetl, name) is not None
    stub = ast.parse(STUB.read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported | {"__version__"} == set(noetl.__all__)
    assert set(noetl.__all__) <= set(dir(noetl))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(noetl, "absent")
