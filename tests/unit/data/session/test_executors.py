"""What executors are asked for is what the slots import there."""

from __future__ import annotations

import subprocess
import sys

from noetl.data.session.executors import NEEDED

_OPTIONAL = frozenset({"typing_extensions"})
"""Imported by others where it is there."""
_PROGRAM = """
import sys
from importlib.metadata import packages_distributions

before = set(sys.modules)
import noetl.runtime.stages.spark_task

tops = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(name for name in tops & packages_distributions().keys() if name not in sys.stdlib_module_names))
"""


def test_a_package_that_slots_import_at_once_is_asked_for() -> None:
    printed = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    imported = set(printed.stdout.split())
    assert "uvloop" in imported
    assert imported - _OPTIONAL <= set(NEEDED)
