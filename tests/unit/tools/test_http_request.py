"""What is sent: every field of an http task."""

from __future__ import annotations

import json
from typing import Any

import pytest

from noetl.tools.base import Call
from noetl.tools.http.addresses import is_blocked_address, is_blocked_host
from noetl.tools.http.request import Request, request_of
from noetl.tools.values import BadField


def build(auth: Any = None, effect_key: str = "", limit: float | None = None, **fields: Any) -> Request:
    fields.setdefault("url", "http://example.org/")
    return request_of(Call(kind="http", fields=fields, auth=auth, effect_key=effect_key, timeout=limit))


def refusal(**fields: Any) -> dict[str, Any]:
    with pytest.raises(BadField) as caught:
        build(**fields)
    assert caught.value.outcome.error is not None
    return caught.value.outcome.error


class TestAddress:
    @pytest.mark.parametrize(
        ("written", "sent"),
        [
            ("http://example.org", "http://example.org/"),
            ("  https://example.org/a b/ü?q=x y  ", "https://example.org/a%20b/%C3%BC?q=x%20y"),
            ("http://h/p%2Fq?sig=a%2Fb%3D", "http://h/p%2Fq?sig=a%2Fb%3D"),
            ("http://h/100%", "http://h/100%25"),
            ("http://bücher.example/", "http://xn--bcher-kva.example/"),
            ("http://user:secret@h:81/p", "http://h:81/p"),
            ("http://[::1]:8080/x", "http://[::1]:8080/x"),
            ("http://h/p#fragment", "http://h/p"),
        ],
    )
    def test_only_what_may_not_stand_in_an_address_is_changed(self, written: str, sent: str) -> None:
        assert build(url=written).url == sent

    def test_endpoint_is_another_name_of_url(self) -> None:
        assert build(url=None, endpoint="http://h/x").url == "http://h/x"

    @pytest.mark.parametrize("bad", ["ftp://h/", "example.org/x", "http:///x", "http://h:99999/", "file:///etc/passwd",
                                     "http://h/a\nHost: evil", "", "http://[::1"])  # fmt: skip
    def test_what_is_not_an_address_is_refused(self, bad: str) -> None:
        assert refusal(url=bad)["code"] == "URL_INVALID"

    def test_a_missing_address_is_said(self) -> None:
        assert refusal(url=None) | {"message": ""} == {
            "kind": "schema", "code": "FIELD_MISSING", "message": "", "retryable": False,
        }  # fmt: skip

    def test_what_is_shown_has_no_query_and_no_password(self) -> None:
        request = build(url="http://me:hush@h/p?token=hush", params={"key": "hush"})
        assert request.shown == "http://h/p"


class TestParams:
    def test_a_list_repeats_its_key_and_none_leaves_it_out(self) -> None:
        request = build(url="http://h/?a=1", params={"b": [1, "x y", None], "c": None, "d": True, "e": {"k": 1}})
        assert request.url == "http://h/?a=1&b=1&b=x%20y&d=true&e=%7B%22k%22%3A1%7D"

    def test_text_is_a_query_string(self) -> None:
        assert build(params="?a=1&b=2").url.endswith("/?a=1&b=2")

    def test_anything_else_is_refused(self) -> None:
        assert "params" in refusal(params=[1])["message"]


class TestBody:
    @pytest.mark.parametrize("name", ["json", "payload"])
    def test_json(self, name: str) -> None:
        fields: dict[str, Any] = {name: {"a": [1, None]}}
        request = build(method="POST", **fields)
        assert (json.loads(request.body or b""), request.headers["Content-Type"]) == (
            {"a": [1, None]},
            "application/json",
        )

    def test_text_given_as_json_is_a_json_string(self) -> None:
        assert build(method="POST", json="x").body == b'"x"'

    def test_a_form_is_url_encoded(self) -> None:
        request = build(method="POST", form={"a": "x y", "b": [1, 2], "c": None})
        assert request.body == b"a=x%20y&b=1&b=2"
        assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"

    def test_a_body_of_text_goes_as_it_is(self) -> None:
        request = build(method="POST", body="<a>ü</a>", headers={"content-type": "application/xml"})
        assert (request.body, request.headers) == ("<a>ü</a>".encode(), {"content-type": "application/xml"})

    def test_a_body_that_is_a_mapping_goes_as_json(self) -> None:
        request = build(method="PUT", body={"a": 1})
        assert (request.body, request.headers["Content-Type"]) == (b'{"a":1}', "application/json")

    def test_data_with_query_and_body_is_split(self) -> None:
        request = build(method="POST", data={"query": {"page": 2}, "body": {"a": 1}})
        assert (request.url, request.body) == ("http://example.org/?page=2", b'{"a":1}')

    def test_data_that_only_mentions_a_query_is_not_split(self) -> None:
        request = build(method="POST", data={"query": "{ me }", "variables": {}})
        assert json.loads(request.body or b"") == {"query": "{ me }", "variables": {}}

    @pytest.mark.parametrize("method", ["GET", "delete"])
    def test_data_is_the_query_of_get_and_delete(self, method: str) -> None:
        request = build(method=method, data={"a": [1, 2]})
        assert (request.url, request.body) == ("http://example.org/?a=1&a=2", None)

    def test_data_is_a_form_for_a_form_content_type(self) -> None:
        request = build(
            method="POST", data={"a": 1}, headers={"Content-Type": "application/x-www-form-urlencoded; x=y"}
        )
        assert request.body == b"a=1"

    def test_data_is_json_otherwise(self) -> None:
        assert build(method="PATCH", data=[1, "x"]).body == b'[1,"x"]'

    def test_data_of_text_is_what_its_content_type_says(self) -> None:
        assert build(method="POST", data="a,b", headers={"Content-Type": "text/csv"}).body == b"a,b"

    def test_no_body_has_no_content_type(self) -> None:
        assert build(method="POST").headers == {}


class TestHeaders:
    def test_a_request_carries_its_effect_key(self) -> None:
        assert build(effect_key="e/1").headers == {"Idempotency-Key": "e/1"}

    def test_the_task_may_set_the_key_itself(self) -> None:
        assert build(effect_key="e/1", headers={"idempotency-key": "mine"}).headers == {"idempotency-key": "mine"}

    def test_none_leaves_a_header_out_and_numbers_become_text(self) -> None:
        assert build(headers={"A": None, "B": 5, "Content-Length": 3}).headers == {"B": "5"}

    @pytest.mark.parametrize("headers", [{"X": "a\r\nEvil: 1"}, {"X Y": "a"}, {"": "a"}, ["X"]])
    def test_a_header_cannot_smuggle_another(self, headers: Any) -> None:
        assert refusal(headers=headers)["kind"] == "schema"

    @pytest.mark.parametrize("method", ["GET /", "", "a\nb"])
    def test_a_method_is_one_word(self, method: str) -> None:
        assert "method" in refusal(method=method)["message"]


class TestTimeAndFlags:
    def test_defaults(self) -> None:
        request = build()
        assert (request.method, request.timeout, request.verify, request.follow) == ("GET", 60.0, True, False)

    @pytest.mark.parametrize(("fields", "expected"), [({"timeout": "2s"}, 2.0), ({"timeout_seconds": 0.5}, 0.5),
                                                      ({"timeout": "250ms"}, 0.25)])  # fmt: skip
    def test_a_timeout_is_a_duration(self, fields: dict[str, Any], expected: float) -> None:
        assert build(**fields).timeout == expected

    def test_the_shorter_of_the_two_limits_counts(self) -> None:
        assert build(timeout=9, limit=3).timeout == 3
        assert build(timeout=3, limit=9).timeout == 3

    @pytest.mark.parametrize("bad", ["soon", 0, -1])
    def test_a_timeout_that_is_none_is_refused(self, bad: Any) -> None:
        assert "timeout" in refusal(url="http://h/", timeout_seconds=bad)["message"]

    def test_flags_may_be_text(self) -> None:
        request = build(verify="False", follow_redirects="yes")
        assert (request.verify, request.follow) == (False, True)
        assert "verify_ssl" in refusal(verify_ssl="maybe")["message"]


class TestAuth:
    @pytest.mark.parametrize(
        ("auth", "header"),
        [
            ({"type": "bearer", "token": "t"}, ("Authorization", "Bearer t")),
            ({"token": "t"}, ("Authorization", "Bearer t")),
            ({"type": "secret", "secret": "t"}, ("Authorization", "Bearer t")),
            ({"type": "google_oauth", "access_token": "t"}, ("Authorization", "Bearer t")),
            ({"type": "bearer", "data": {"token": "t"}}, ("Authorization", "Bearer t")),
            ({"type": "basic", "username": "u", "password": "p"}, ("Authorization", "Basic dTpw")),
            ({"user": "u", "password": "p"}, ("Authorization", "Basic dTpw")),
            ({"type": "api_key", "key": "k"}, ("X-API-Key", "k")),
            ({"type": "api_key", "value": "k", "header": "X-Mine"}, ("X-Mine", "k")),
            ({"svc": {"type": "bearer", "token": "t"}}, ("Authorization", "Bearer t")),
        ],
    )
    def test_forms(self, auth: Any, header: tuple[str, str]) -> None:
        request = build(auth=auth)
        assert request.headers == dict([header])
        assert header[0].lower() in request.private

    def test_an_api_key_may_be_a_parameter_which_the_result_does_not_repeat(self) -> None:
        request = build(auth={"type": "api_key", "key": "k", "in": "query", "name": "q"}, params={"a": 1})
        assert (request.url, request.public) == ("http://example.org/?a=1&q=k", "http://example.org/?a=1")

    def test_several_aliases_add_up(self) -> None:
        request = build(auth={"a": {"type": "bearer", "token": "t"}, "b": {"type": "api_key", "key": "k"}})
        assert request.headers == {"Authorization": "Bearer t", "X-API-Key": "k"}

    def test_a_header_of_the_task_wins(self) -> None:
        assert build(auth={"token": "t"}, headers={"authorization": "Mine x"}).headers == {"authorization": "Mine x"}

    def test_user_and_password_of_an_address_become_a_header(self) -> None:
        assert build(url="http://u:p%21@h/").headers == {"Authorization": "Basic dTpwIQ=="}

    @pytest.mark.parametrize(
        "auth", ["name", {"a": "name"}, {"type": "kerberos"}, {"type": "bearer"}, {"type": "basic"}]
    )
    def test_what_cannot_be_used_is_an_auth_error(self, auth: Any) -> None:
        assert refusal(auth=auth)["kind"] == "auth"


@pytest.mark.parametrize(
    ("address", "blocked"),
    [
        ("169.254.169.254", True), ("169.254.0.1", True), ("fe80::1", True), ("fe80::1%eth0", True),
        ("::ffff:169.254.169.254", True), ("64:ff9b::a9fe:a9fe", True), ("2002:a9fe:a9fe::", True),
        ("::169.254.169.254", True), ("fd00:ec2::254", True), ("100.100.100.200", True), ("not an address", True),
        ("127.0.0.1", False), ("10.0.0.1", False), ("::1", False), ("8.8.8.8", False), ("2001:db8::1", False),
    ],
)  # fmt: skip
def test_link_local_and_metadata_addresses_are_known_in_every_spelling(address: str, blocked: bool) -> None:
    assert is_blocked_address(address) is blocked


def test_metadata_services_are_known_by_name() -> None:
    assert is_blocked_host("Metadata.Google.Internal.")
    assert not is_blocked_host("example.org")


@pytest.mark.parametrize("effect_key", ["", "run/1/start/0"])
@pytest.mark.parametrize("limit", [None, 5.0])
@pytest.mark.parametrize(
    "fields",
    [
        {"url": "http://h/p?x=1 2", "params": {"a": [1, None, "é"], "b": True}},
        {"endpoint": "https://me:secret@h:8443/p"},
        {"url": "http://h", "params": "?a=b c", "timeout": "90s"},
        {"url": "http://h", "params": {}, "timeout": None},
    ],
)
def test_a_task_that_says_no_more_than_where_is_one_that_says_the_usual(
    fields: dict[str, Any], limit: float | None, effect_key: str
) -> None:
    usual = {"method": "GET", "headers": {}, "verify": True, "follow_redirects": False}
    plain, whole = (
        request_of(Call(kind="http", fields=given, effect_key=effect_key, timeout=limit))
        for given in (fields, {**fields, **usual})
    )
    assert plain == whole


@pytest.mark.parametrize(
    "fields", [{}, {"url": "ftp://h"}, {"url": "http://h", "params": 5}, {"url": "http://h", "timeout": "x"}]
)
def test_what_cannot_be_sent_is_refused_alike(fields: dict[str, Any]) -> None:
    said = []
    for given in (fields, {**fields, "method": "GET"}):
        with pytest.raises(BadField) as refused:
            request_of(Call(kind="http", fields=given))
        said.append(refused.value.outcome)
    assert said[0] == said[1]
