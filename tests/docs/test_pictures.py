"""The pictures of the page "Ask the past" show the questions that the page asks."""

from __future__ import annotations

import html
import importlib.util
import re
from types import ModuleType

import pytest

from tests.docs.pages import ROOT


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_history", ROOT / "scripts" / "draw_history.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DRAWING = script()


@pytest.mark.parametrize("name", DRAWING.PICTURES)
def test_a_picture_shows_the_question_of_the_page(name: str) -> None:
    picture = DRAWING.PAGE.with_name(f"{DRAWING.PAGE.stem}-{name}.svg").read_text(encoding="utf-8")
    text = html.unescape("".join(re.findall(r">([^<]*)</text>", picture)))
    shown = re.sub(r"\s+", "", text)
    for argument in DRAWING.questions()[name]:
        assert re.sub(r"\s+", "", argument) in shown
