"""How a process ends: with its code and its words, whoever else is still busy in it."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import atexit, sys, threading, time, types
from noetl.cli.ending import Ending
ending = Ending()
atexit.register(print, "tidied up")
sys.modules[{module!r}] = types.ModuleType({module!r})
threading.Thread(target=lambda: (time.sleep(0.05), print("worked to its end"))).start()
class TakenDown:
    def __del__(self): sys.__stderr__.write("taken down\\n")
kept = TakenDown()
ending.code = {code}
print("said", end="\\n")
sys.exit({code})
"""


@pytest.mark.parametrize(("module", "is_taken_down"), [("obstore", False), ("something", True)])
def test_everybody_tidies_up_and_the_code_stays(module: str, is_taken_down: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(module=module, code=3)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "said\nworked to its end\ntidied up\n")
    assert ("taken down" in done.stderr) == is_taken_down


def test_an_error_that_nobody_expects_is_shown() -> None:
    code = CODE.format(module="obstore", code=3).replace("ending.code = 3", "1 / 0")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
