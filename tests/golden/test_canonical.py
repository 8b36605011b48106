"""The canonical encoding is pinned by vectors, and the vectors by a second encoder written from the rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from noetl.kernel import canonical
from noetl.kernel.canonical import NotCanonical

VECTORS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("canonical.json").read_bytes())
ACCEPTED = [vector for vector in VECTORS if "canonical" in vector]
REFUSED = [vector for vector in VECTORS if "error" in vector]

_TAGS: dict[str, Callable[[Any], Any]] = {
    "$float": float,
    "$decimal": Decimal,
    "$datetime": datetime.fromisoformat,
    "$bytes": bytes.fromhex,
    "$code_points": lambda points: "".join(map(chr, points)),
    "$json": canonical.decode,
    "$tuple": lambda items: tuple(map(untagged, items)),
    "$pairs": lambda pairs: {untagged(key): untagged(value) for key, value in pairs},
}


def untagged(value: Any) -> Any:
    """The value that a vector stands for: `{"$decimal": "1.10"}` is a Decimal."""
    if isinstance(value, list):
        return [untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        (tag, content), *_ = value.items()
        if tag in _TAGS:
            return _TAGS[tag](content)
    return {key: untagged(item) for key, item in value.items()}


def spelled(value: Any) -> str:
    """The canonical text, from the rules alone and without any JSON library."""
    match value:
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[value]
        case int() | float():
            return repr(value + 0.0) if isinstance(value, float) else repr(value)
        case Decimal():
            return quoted(f"{value:f}")
        case datetime():
            moment = value.astimezone(UTC)
            date = f"{moment.year:04}-{moment.month:02}-{moment.day:02}"
            return quoted(f"{date}T{moment.hour:02}:{moment.minute:02}:{moment.second:02}.{moment.microsecond:06}Z")
        case str():
            return quoted(value)
        case dict():
            items = sorted(value.items(), key=lambda item: [ord(character) for character in item[0]])
            return "{" + ",".join(f"{quoted(key)}:{spelled(item)}" for key, item in items) + "}"
        case _:
            return "[" + ",".join(map(spelled, value)) + "]"


def quoted(text: str) -> str:
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
    return '"' + "".join(short.get(one) or (f"\\u{ord(one):04x}" if one < " " else one) for one in text) + '"'


def name_of(vector: dict[str, Any]) -> str:
    return str(vector["name"])


def test_there_are_enough_vectors_and_each_has_a_name_of_its_own() -> None:
    assert len(VECTORS) >= 40
    assert len({name_of(vector) for vector in VECTORS}) == len(VECTORS)


@pytest.mark.parametrize("vector", ACCEPTED, ids=name_of)
def test_a_value_has_the_pinned_text(vector: dict[str, Any]) -> None:
    assert canonical.encode(untagged(vector["value"])) == vector["canonical"].encode()


@pytest.mark.parametrize("vector", ACCEPTED, ids=name_of)
def test_the_pinned_text_follows_from_the_rules(vector: dict[str, Any]) -> None:
    assert spelled(untagged(vector["value"])) == vector["canonical"]


@pytest.mark.parametrize("vector", ACCEPTED, ids=name_of)
def test_the_pinned_text_is_read_and_written_unchanged(vector: dict[str, Any]) -> None:
    text = vector["canonical"].encode()
    assert canonical.encode(canonical.decode(text)) == text


@pytest.mark.parametrize("vector", REFUSED, ids=name_of)
def test_what_has_no_text_is_refused_with_a_reason(vector: dict[str, Any]) -> None:
    with pytest.raises(NotCanonical) as refused:
        canonical.encode(untagged(vector["value"]))
    assert vector["error"] in refused.value.message
