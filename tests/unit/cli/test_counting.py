"""How far a long piece of work has come."""

from __future__ import annotations

import sys

import pytest

from noetl.cli.counting import counted, size


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (6083, "5.94 KiB"),
        (200 << 20, "200 MiB"),
        (1_045_000, "1021 KiB"),
        (3 << 50, "3072 TiB"),
    ],
)
def test_bytes_for_eyes(count: int, text: str) -> None:
    assert size(count) == text


def test_a_pipe_sees_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with counted() as show:
        show("looked at objects", 1)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_sees_a_line_that_goes_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with counted() as show:
        show("looked at objects", 1)
        show("looked at objects", 2)
    with counted(quiet=True) as show:
        show("looked at objects", 3)
    assert capsys.readouterr().err == "\r\x1b[K  looked at objects: 1\r\x1b[K"
