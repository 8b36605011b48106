"""Credentials of a known type are checked, those of others are kept, and no message repeats a value."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.errors import InvalidInput, InvalidName
from noetl.ports.credentials import Credential
from noetl.tools.secrets.types import TYPES, check_credential, is_secret, missing_fields

SECRET = "do-not-repeat"
POSTGRES = {"db_host": "h", "db_port": "5432", "db_user": "u", "db_password": SECRET, "db_name": "n"}


def check(kind: str, data: Any, name: str = "c") -> None:
    check_credential(Credential(name=name, type=kind, data=data))


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("postgres", POSTGRES),
        ("postgres", POSTGRES | {"db_port": 5432}),
        ("postgres", {"db_host": "h", "db_user": "u", "db_name": "n"}),
        ("nats", {"url": "nats://n"}),
        ("kafka", {"brokers": ["a:9092"]}),
        ("secret", {"secret": SECRET}),
        ("bearer", {"token": SECRET}),
        ("basic", {"user": "u", "password": SECRET}),
        ("basic", {"username": "u", "password": SECRET}),
        *((kind, {"anything": SECRET}) for kind in TYPES if not TYPES[kind]),
        ("a-type.of_my-own", {"x": {"y": [1, None]}}),
    ],
)
def test_what_is_complete_is_accepted(kind: str, data: Any) -> None:
    check(kind, data)


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("postgres", {"db_password": SECRET}, "of type postgres has no db_host, db_user, db_name"),
        ("postgres", POSTGRES | {"db_name": ""}, "has no db_name"),
        ("postgres", POSTGRES | {"db_port": "many"}, "db_port is not a number between 1 and 65535"),
        ("postgres", POSTGRES | {"db_port": 70000}, "db_port is not a number"),
        ("postgres", POSTGRES | {"db_password": 12345}, "db_password is not text"),
        ("bearer", {}, "has no token"),
        ("basic", {"password": SECRET}, "has no username or user"),
        ("kafka", {"brokers": 9092}, "brokers is not text or a list"),
        ("own", {}, "has no data"),
        ("own", {"": SECRET}, "a field without a name"),
        ("own", {"x": object()}, "data that is not JSON"),
        ("own", {"x": SECRET * 30_000}, "the limit is 262144"),
    ],
)
def test_what_is_not_is_refused(kind: str, data: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        check(kind, data)
    assert SECRET not in str(caught.value)


def test_the_shape_is_told() -> None:
    with pytest.raises(InvalidInput) as caught:
        check("postgres", {"db_host": "h"})
    assert caught.value.hint == (
        "a postgres credential consists of db_host, [db_port], db_user, [db_password], db_name"
    )


@pytest.mark.parametrize("kind", ["", "a b", "x" * 65, "ä"])
def test_a_type_is_a_word(kind: str) -> None:
    with pytest.raises(InvalidName, match="is not a credential type"):
        check(kind, {"x": 1})


def test_what_is_missing_may_have_another_name() -> None:
    assert missing_fields("basic", {"user": "u", "password": "p"}) == []
    assert [field.name for field in missing_fields("postgres", {}, optional=True)] == list(POSTGRES)


@pytest.mark.parametrize(
    ("field", "value", "secret"),
    [
        ("db_password", "x", True),
        ("DB_HOST", "x", False),
        ("whatever", "x", True),
        ("url", "https://host/path", False),
        ("url", "nats://user:pw@host", True),
        ("url", "https://[broken@", False),
    ],
)
def test_which_fields_are_secret(field: str, value: str, secret: bool) -> None:
    assert is_secret(field, value) is secret


def test_a_credential_does_not_print_its_values() -> None:
    from rich.pretty import pretty_repr

    credential = Credential(name="c", type="bearer", data={"token": SECRET})
    assert SECRET not in f"{credential!r} {credential} {pretty_repr(credential)}"
