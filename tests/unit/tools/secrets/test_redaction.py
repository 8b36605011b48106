"""Secrets leave the process in no spelling we know, and everything else leaves unchanged."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.kernel.lazy import Composite
from noetl.payloads.arrow import table_of
from noetl.payloads.tables import TableValue
from noetl.tools.secrets.redaction import Redactor

SECRET = "p@ss/wörd+'x\"y\\z&é 1"
MARKER = {"$secret": "crm.token"}


@pytest.fixture
def redactor() -> Redactor:
    made = Redactor()
    made.add("crm.token", SECRET)
    return made


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "basic authentication": lambda text: base64.b64encode(f"alice:{text}".encode()).decode(),
    "basic authentication of another": lambda text: base64.b64encode(f"bob:{text}:x".encode()).decode(),
    "inside base64": lambda text: base64.b64encode(f"zz{text}tail".encode()).decode(),
    "in a path": lambda text: quote(text, safe=""),
    "in a path with slashes": quote,
    "with small percents": lambda text: re.sub("%..", lambda found: found[0].lower(), quote(text, safe="")),
    "in a form": quote_plus,
    "JSON": json.dumps,
    "JSON, unescaped": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "Python": repr,
    "HTML": html.escape,
    "SQL": lambda text: text.replace("'", "''"),
    "shell": shlex.quote,
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_found_inside_a_text(spelling: str, redactor: Redactor) -> None:
    spelled = SPELLINGS[spelling](SECRET)
    hidden = redactor.text(f"before {spelled} after")
    assert hidden.startswith("before ")
    assert hidden.endswith(" after")
    assert "***" in hidden
    rest = hidden.removeprefix("before ").removesuffix(" after").replace("***", "")
    assert len(rest) <= 12, "only what surrounds the secret is left"


@given(
    st.text(min_size=4).filter(lambda text: all(ord(char) < 0xD800 or ord(char) > 0xDFFF for char in text)),
    st.sampled_from(sorted(SPELLINGS)),
)
def test_no_secret_survives_its_spelling(secret: str, spelling: str) -> None:
    redactor = Redactor()
    redactor.add("a.b", secret)
    hidden = redactor.text(f"<{SPELLINGS[spelling](secret)}>")
    assert "***" in hidden
    assert secret not in hidden or secret in "***"


def test_a_whole_value_becomes_its_name(redactor: Redactor) -> None:
    value = {"auth": SECRET, "headers": ["x", base64.b64encode(SECRET.encode()).decode()], "n": 1, "none": None}
    assert redactor.value(value) == {"auth": MARKER, "headers": ["x", MARKER], "n": 1, "none": None}


def test_a_part_of_a_text_becomes_stars(redactor: Redactor) -> None:
    assert redactor.value({"Authorization": f"Bearer {SECRET}"}) == {"Authorization": "Bearer ***"}


def test_data_without_secrets_is_the_same_object(redactor: Redactor) -> None:
    value = {"rows": [{"a": 1, "b": "text"}] * 3}
    assert redactor.value(value) is value
    assert Redactor().value(value) is value


def test_keys_are_looked_at_and_none_is_lost(redactor: Redactor) -> None:
    redactor.add("b.c", "other-secret")
    assert redactor.value({SECRET: 1, "other-secret": 2, "***": 3, "k": 4}) == {
        "***~0": 1,
        "***~1": 2,
        "***": 3,
        "k": 4,
    }


@pytest.mark.parametrize("value", [123456, 1234.5, -98765])
def test_numbers_are_found_as_numbers_and_as_text(value: float) -> None:
    redactor = Redactor()
    redactor.add("door.pin", value)
    marker = {"$secret": "door.pin"}
    assert redactor.value([value, str(value), f"pin {value}!", 17]) == [marker, marker, "pin ***!", 17]


def test_digits_stored_as_text_are_found_as_a_number() -> None:
    redactor = Redactor()
    redactor.add("door.pin", "123456")
    assert redactor.value([123456, True]) == [{"$secret": "door.pin"}, True]


class Text(str):
    """Text of another type, as enumerations are."""

    __slots__ = ()


@pytest.mark.parametrize(
    "value", [{7: SECRET}, {None: [SECRET]}, {(1, 2): {True: SECRET}}, (SECRET,), [Text(SECRET)], {Text("a"): SECRET}]
)
def test_keys_that_are_no_text_and_types_of_others_are_looked_through(value: Any, redactor: Redactor) -> None:
    assert SECRET not in str(redactor.value(value))
    assert "crm.token" in str(redactor.value(value))


def test_what_is_nested_has_its_path_for_a_name() -> None:
    redactor = Redactor()
    redactor.add("sa", {"keys": [{"private": "nested-secret"}]})
    assert redactor.value("nested-secret") == {"$secret": "sa.keys.0.private"}


@pytest.mark.parametrize("value", ["abc", "", None, True, False, 12, []])
def test_what_is_too_short_to_tell_is_left_alone(value: Any) -> None:
    redactor = Redactor()
    redactor.add("a.b", value)
    text = "abc True False None 12"
    assert redactor.text(text) == text


def test_overlapping_secrets_leave_nothing_behind() -> None:
    redactor = Redactor()
    redactor.add("a.x", "abcdef")
    redactor.add("a.y", "defghi")
    redactor.add("a.z", "cdefgh")
    assert redactor.text("<abcdefghi>") == "<***>"


def test_a_line_of_a_key_a_password_of_an_address_and_a_field_of_json_are_secrets_too() -> None:
    redactor = Redactor()
    lines = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nBAQEFAASCBKcwggSjAgEAAo\n-----END PRIVATE KEY-----\n"
    redactor.add("sa.json", json.dumps({"project_id": "shop-eu", "private_key": lines}))
    redactor.add("pg.dsn", "postgresql://alice:h%40nter22@db/x")
    redactor.add("pg.words", "host=db user=alice password=kw-secret sslmode=require")
    printed = "MIIEvQIBADANBgkqhkiG9w0 | h@nter22 | kw-secret | shop-eu | -----BEGIN PRIVATE KEY-----"
    assert redactor.text(printed) == "*** | *** | *** | shop-eu | -----BEGIN PRIVATE KEY-----"


@given(st.recursive(st.text() | st.integers() | st.none() | st.sampled_from(["abcd", "x abcd y", "a***d", "crm.token"]),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("abcd"), inner)))  # fmt: skip
def test_redacting_twice_is_redacting_once(value: Any) -> None:
    redactor = Redactor()
    redactor.add("crm.token", "abcd")
    redactor.add("crm.other", "a***d")
    redactor.add("crm.third", "token")  # is part of the names themselves
    once = redactor.value(value)
    assert redactor.value(once) == once
    assert "abcd" not in json.dumps(once)


def test_a_secret_dressed_as_a_marker_is_not_let_through(redactor: Redactor) -> None:
    assert redactor.value({"$secret": SECRET}) == {"$secret": MARKER}
    assert redactor.value({"$secret": f"x {SECRET}", "a": 1}) == {"$secret": "x ***", "a": 1}


def test_an_error_says_what_it_says_without_the_secret(redactor: Redactor) -> None:
    assert redactor.error(ValueError(f"cannot log in with {SECRET}")) == "cannot log in with ***"
    assert redactor.error(TimeoutError()) == "TimeoutError"


class TestSymbolic:
    @pytest.fixture
    def known(self) -> Redactor:
        made = Redactor()
        made.add("pg.password", SECRET)
        made.add("pg.pin", "12")
        made.add("pg.host", "db", secret=False)
        return made

    @pytest.mark.parametrize(
        "written",
        ["{{ keychain.pg.password }}", "{{keychain.pg['password']}}", ' {{- keychain["pg"]["password"] -}} '],
    )
    def test_a_reference_is_recorded_by_its_name(self, written: str, known: Redactor) -> None:
        assert known.symbolic({"a": [written]}, {"a": [SECRET]}) == {"a": [{"$secret": "pg.password"}]}

    def test_a_short_value_and_a_host_name_are_recorded_by_name_too(self, known: Redactor) -> None:
        written = {"pin": "{{ keychain.pg.pin }}", "host": "{{ keychain.pg.host }}"}
        assert known.symbolic(written, {"pin": "12", "host": "db"}) == {
            "pin": {"$secret": "pg.pin"},
            "host": {"$secret": "pg.host"},
        }

    def test_within_a_text_the_values_are_hidden_whatever_they_are(self, known: Redactor) -> None:
        written = "postgres://{{ keychain.pg.host }}/{{ ctx.name }}?pin={{ keychain.pg.pin }}"
        assert known.symbolic(written, "postgres://db/orders?pin=12") == "postgres://***/orders?pin=***"

    def test_what_was_computed_from_a_secret_is_hidden_whole(self, known: Redactor) -> None:
        written = "x{{ keychain.pg.password | upper }}"
        assert known.symbolic(written, "x" + SECRET.upper()) == {"$secret": "pg.password"}
        assert known.symbolic("{{ keychain.pg.pin | int + 1 }}", 13) == {"$secret": "pg.pin"}
        assert known.symbolic("{{ keychain[ctx.which].pin }}", "12") == {"$secret": "keychain"}

    def test_an_entry_as_a_whole_shows_its_fields(self, known: Redactor) -> None:
        assert known.symbolic("{{ keychain.pg }}", {"host": "db", "pin": "12"}) == {
            "host": {"$secret": "pg.host"},
            "pin": {"$secret": "pg.pin"},
        }

    def test_what_was_undefined_stays_none(self, known: Redactor) -> None:
        assert known.symbolic("{{ keychain.gone.token }}", None) is None

    def test_the_rest_is_redacted_by_value(self, known: Redactor) -> None:
        written = {"a": "{{ ctx.leaked }}", "b": "{{ rows }}", "c": 1}
        rendered = {"a": SECRET, "b": [{"x": f"-{SECRET}-"}], "c": 1}
        assert known.symbolic(written, rendered) == {"a": {"$secret": "pg.password"}, "b": [{"x": "-***-"}], "c": 1}


class TestTables:
    """A table is searched column by column, and rewritten only where there is something to hide."""

    @pytest.fixture
    def plain(self) -> TableValue:
        return TableValue(pa.table({"a": [1, 2], "s": ["x", "y"], "n": [{"deep": ["z"]}, None]}))

    def test_one_without_secrets_is_the_very_same(self, redactor: Redactor, plain: TableValue) -> None:
        assert redactor.value(plain) is plain
        held = {"results": [plain], "n": 1}
        assert redactor.value(held) is held

    @pytest.mark.parametrize(
        "column",
        [
            pa.array([SECRET, "fine", None]),
            pa.array([f"before {SECRET} after", "fine", None], pa.large_string()),
            pa.array([SECRET, "fine", None]).dictionary_encode(),
            pa.array([SECRET.encode(), b"fine", None]),
            pa.array([{"deep": {"text": SECRET}}, {"deep": {"text": "fine"}}, None]),
            pa.array([SECRET, "fine", None], pa.string_view()),
            pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array([SECRET, "fine"], pa.string_view())),
            pa.array([SECRET.encode(), b"fine", None], pa.binary_view()),
            pa.array([SECRET.encode(), b"fine".ljust(len(SECRET.encode())), None], pa.binary(len(SECRET.encode()))),
            pa.array([json.dumps({"k": SECRET}, ensure_ascii=False), '"fine"', None], pa.json_(pa.string())),
            pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), pa.array([SECRET, "fine", None])),
            pa.array([["x", SECRET], ["fine"], None]),
            pa.array([[("x", SECRET)], [("y", "fine")], None], pa.map_(pa.string(), pa.string())),
            pa.array([[{"b": SECRET.encode()}], [{"b": b"fine"}], None]),
        ],
    )
    def test_a_secret_is_taken_out_of_a_column(self, column: Any, redactor: Redactor, plain: TableValue) -> None:
        table = pa.table({"column": column, "other": [1, 2, 3]})
        for value in (TableValue(table), Composite({"_prev": TableValue(table), "rows": TableValue(table)["rows"]})):
            clean = redactor.value(value)
            text = json.dumps(clean.plain(), ensure_ascii=False)
            assert SECRET not in text
            assert "wörd" not in text
            assert "fine" in text
            assert '"other": 3' in text

    def test_numbers_may_be_secret_too(self) -> None:
        redactor = Redactor()
        redactor.add("pin", 9123456789)
        clean = redactor.value(TableValue(pa.table({"n": [1, 9123456789], "f": [1.5, 2.5]})))
        assert "9123456789" not in json.dumps(clean.plain())
        assert clean["rows"][0] == {"n": "1", "f": 1.5}

    def test_names_of_columns_are_looked_at(self, redactor: Redactor) -> None:
        table = pa.table([[1], [2], [3]], names=[f"{SECRET}", f"x{SECRET}", "fine"])
        clean = redactor.value(TableValue(table))
        assert len(set(clean["columns"])) == 3
        assert SECRET not in str(clean["columns"])
        assert clean["rows"][0]["fine"] == 3

    def test_json_that_lies_in_a_table_stays_json(self, redactor: Redactor) -> None:
        table = table_of([{"a": SECRET, "b": 1}, {"a": "fine", "b": 2}])
        assert table is not None
        clean = redactor.value(TableValue(table, native=False))
        assert clean.plain()[1] == {"a": "fine", "b": 2}
        assert SECRET not in str(clean.plain())

    def test_secrets_too_long_for_one_look_are_found_as_well(self) -> None:
        redactor = Redactor()
        keys = ["".join(chr(33 + (n * seed) % 90) for n in range(20_000)) for seed in (7, 11, 13)]
        for number, key in enumerate(keys):
            redactor.add(f"key.{number}", key)
        clean = redactor.value(TableValue(pa.table({"a": ["fine", f"x {keys[1]} y"]})))
        assert clean["rows"].plain() == [{"a": "fine"}, {"a": "x *** y"}]
