"""What a session that runs can share."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from noetl.data.session import classic, opened
from noetl.data.session.conf import SessionConf
from noetl.data.session.opened import _is_same
from noetl.data.session.refusals import SparkLost, SparkUnavailable


@pytest.mark.parametrize(
    ("name", "have", "want", "same"),
    [
        ("spark.driver.memory", "1g", "1g", True),
        ("spark.driver.memory", "1g", "2g", False),
        ("spark.driver.memory", None, "2g", False),
        ("spark.driver.extraJavaOptions", "-Dspark=1 -Dours=2 -Xss4m", "-Xss4m", True),
        ("spark.driver.extraJavaOptions", "-Dspark=1 -Dours=2", "-Xss4m", False),
        ("spark.jars", "file:///a/b.jar,file:///c.jar", "/a/b.jar,/c.jar", True),
        ("spark.jars", "file:///a/b.jar", "/a/c.jar", False),
        ("spark.driver.extraJavaOptions", "-Dspark=1 -Dours=2 -XXss4m", "Xss4m", False),
    ],
)
def test_options_of_a_jvm_are_the_same_behind_those_that_are_always_there(
    name: str, have: str | None, want: str, same: bool
) -> None:
    assert _is_same(name, have, want) is same


class _Jvm:
    """A Java process, of which is known whether it has ended."""

    gateway = None
    pid = 1

    def __init__(self, *, is_dead: bool) -> None:
        self.is_dead = is_dead

    def ends_within(self, _: float) -> bool:
        return self.is_dead


class _Scratch:
    path = Path("/nowhere")

    class workspace:  # noqa: N801 - as it is called
        log = Path("/nowhere/spark.log")


@pytest.mark.parametrize("moment", ["start", "_describe"])
@pytest.mark.parametrize(("is_dead", "kind"), [(True, SparkLost), (False, SparkUnavailable)])
def test_a_start_that_its_jvm_does_not_survive_is_lost_whenever_that_is(
    moment: str, is_dead: bool, kind: type[SparkUnavailable], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Root:
        version = "4"

    def refused(*_: Any) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")

    stopped: list[Any] = []
    monkeypatch.setattr(classic, "start", lambda _: Root())
    monkeypatch.setattr(classic, "stop", stopped.append)
    monkeypatch.setattr(classic if moment == "start" else opened, moment, refused)
    jvm: Any = _Jvm(is_dead=is_dead)
    scratch: Any = _Scratch()
    with pytest.raises(SparkUnavailable) as caught, contextlib.ExitStack() as ends:
        opened._start(SessionConf(master="local[2]"), jvm, scratch, ends)
    assert type(caught.value) is kind
    assert len(stopped) == (moment == "_describe")
