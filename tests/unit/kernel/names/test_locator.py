from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import InvalidName
from noetl.kernel.names import (
    InfrastructureName,
    LegacyResult,
    Name,
    PayloadName,
    ResourceName,
    ResultCoordinates,
    ResultName,
    from_urn,
    parse,
    to_urn,
)
from tests.unit.kernel.names.strategies import names, resources

DIGEST = "b7e4" * 16
READS = ResourceName(
    tenant="stanford", project="lab-a", kind="genomics", path=("dataset", "sample_reads"), version="v3"
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("noetl://stanford/lab-a/genomics/dataset/sample_reads@v3", READS),
        (
            "noetl://t_acme_lab/p_genomics_01/results/exec_20260529_000001/align_reads/main@v1",
            ResourceName(
                tenant="t_acme_lab",
                project="p_genomics_01",
                kind="results",
                path=("exec_20260529_000001", "align_reads", "main"),
                version="v1",
            ),
        ),
        ("noetl://a/b/datasets/x", ResourceName(tenant="a", project="b", kind="datasets", path=("x",))),
        (
            "noetl://a/b/results/42/load%20it~1/0/0/1@v1",
            ResultName(ResultCoordinates(tenant="a", project="b", execution_id=42, step="load it", run=1, attempt=1)),
        ),
        (f"noetl://a/b/payloads/sha256/{DIGEST}", PayloadName(tenant="a", project="b", sha256=DIGEST)),
        ("noetl://tenant/acme", InfrastructureName(tenant="acme")),
        (
            "noetl://tenant/acme/org/care/region/us/zone/us-a/cluster/prod-1/node/n7/worker/cpu-01",
            InfrastructureName(
                tenant="acme", org="care", region="us", zone="us-a", cluster="prod-1", node="n7", worker="cpu-01"
            ),
        ),
        ("noetl://execution/42/result/load%7Eit/ref-1", LegacyResult("noetl://execution/42/result/load%7Eit/ref-1")),
    ],
)
def test_every_form_is_read_and_printed(text: str, name: Name) -> None:
    assert parse(text) == name
    assert str(name) == text


def test_reading_normalises_the_spelling() -> None:
    assert str(parse("noetl://a/b/datasets/%7ex,y/caf%c3%a9@1%2e2")) == "noetl://a/b/datasets/~x%2Cy/caf%C3%A9@1.2"


def test_the_older_order_of_topology_is_read_and_printed_from_coarse_to_fine() -> None:
    text = "noetl://tenant/acme/org/care/cluster/prod-1/region/us/zone/us-a/node/n7/process/1/worker/cpu-01"
    canonical = "noetl://tenant/acme/org/care/region/us/zone/us-a/cluster/prod-1/node/n7/process/1/worker/cpu-01"
    assert str(parse(text)) == canonical
    assert parse(canonical) == parse(text)


def test_an_older_reference_tells_its_parts_and_keeps_its_text() -> None:
    older = parse("noetl://execution/exec_1/result/load%20it/a/b")
    assert isinstance(older, LegacyResult)
    assert (older.execution_id, older.step, older.ref) == ("exec_1", "load it", "a/b")


@given(names)
def test_every_name_reads_back_from_its_text(name: Name) -> None:
    assert parse(str(name)) == name
    assert str(parse(str(name))) == str(name)


@given(names, names)
def test_different_names_never_share_a_text(one: Name, other: Name) -> None:
    assert (one == other) == (str(one) == str(other))


@given(st.text() | st.text("noetl:/@%.~ab01#? tenantexecutionresultspayloads").map(lambda tail: f"noetl://{tail}"))
def test_any_text_is_read_canonically_or_refused(text: str) -> None:
    try:
        name = parse(text)
    except InvalidName:
        return
    assert parse(str(name)) == name


REFUSED = [
    ("", "it does not begin with noetl://"),
    ("noetl:/a/b/c/d", "it does not begin with noetl://"),
    ("http://a/b/c/d", "it does not begin with noetl://"),
    ("NOETL://a/b/c/d", "it does not begin with noetl://"),
    ("noetl://", "it has an empty segment"),
    ("noetl:///b/c/d", "it has an empty segment"),
    ("noetl://a/b//d", "it has an empty segment"),
    ("noetl://a/b/c/d/", "it has an empty segment"),
    ("noetl://a/b/c/@v1", "it has an empty segment"),
    ("noetl://a/b/c/d?x=1", "a name has no query"),
    ("noetl://a/b/c/d#x", "a name has no fragment"),
    ("noetl://a/b/c/..", "path segment '..' is a relative path"),
    ("noetl://a/b/c/%2e%2e/d", "path segment '..' is a relative path"),
    ("noetl://a/b/./d", "kind '.' is a relative path"),
    ("noetl://user@a/b/c/d", "user information is not part of a name"),
    ("noetl://u:p@a/b/c/d", "user information is not part of a name"),
    ("noetl://a:80/b/c/d", "a port is not part of a name"),
    ("noetl://a/b/c/d e", "it holds the whitespace ' ' (write %20)"),
    (" noetl://a/b/c/d", "it holds the whitespace ' '"),
    ("noetl://a/b/c/d\n", r"it holds the whitespace '\n'"),
    ("noetl://a/b/c/\u2003d", "it holds the whitespace"),
    ("noetl://a/b/c/d\x00", "must be percent-encoded (write %00)"),
    ("noetl://a/b/c/d%00", "holds the control character U+0000"),
    ("noetl://a/b/c/é", "character 'é' must be percent-encoded (write %C3%A9)"),
    ("noetl://a/b/c/\ud800", "lone surrogate"),
    ("noetl://a/b/c/d%", "'%' is not an escape"),
    ("noetl://a/b/c/d%ff", "the escapes '%ff' are not UTF-8"),
    ("noetl://a/b/c/d|e", "character '|' must be percent-encoded (write %7C)"),
    ("noetl://a/b/c@v/d", "'@' stands once, between the last segment and the version (in a segment write %40)"),
    ("noetl://a/b/c/d@v@w", "'@' stands once"),
    ("noetl://a/b/c/d@", "version is empty"),
    ("noetl://a/b/c/d@..", "version '..' is a relative path"),
    ("noetl://a/b/c", "it ends before a path (noetl://<tenant>/<project>/<kind>/<path>@<version>)"),
    ("noetl://a/b/c/" + "d" * 2048, "a name has at most 2048 bytes"),
    ("noetl://a/b/results/42/load~1/0/0@v1", "it does not have the parts of a result name"),
    ("noetl://a/b/payloads/sha256/abc", "'abc' is not a sha256 digest (64 lower-case hex digits)"),
    (f"noetl://a/b/payloads/sha256/{DIGEST.upper()}", "is not a sha256 digest"),
    (f"noetl://a/b/payloads/sha256/{DIGEST}@v1", "a payload name ends with its digest and has no version"),
    (f"noetl://a/b/payloads/sha256/{DIGEST}/x", "a payload name ends with its digest and has no version"),
    ("noetl://tenant", "'tenant' has no value"),
    ("noetl://tenant/a/org", "'org' has no value"),
    ("noetl://tenant/tenant", "a tenant cannot be called 'tenant'"),
    ("noetl://tenant/a/node/n/zone/z", "'tenant/node/zone' are not some of tenant/org/region/zone/cluster/node"),
    ("noetl://tenant/a/org/x/org/y", "'tenant/org/org' are not some of"),
    ("noetl://tenant/a/stream/events", "'tenant/stream' are not some of"),
    ("noetl://tenant/a@v1", "an infrastructure name has no version"),
    ("noetl://execution/1/result/step", "it does not have the parts of an older result reference"),
    ("noetl://execution/1/output/step/ref", "it does not have the parts of an older result reference"),
    ("noetl://execution/1/result/step/ref@v1", "it does not have the parts of an older result reference"),
    ("noetl://execution/1/result/../ref", "segment '..' is a relative path"),
    ("urn:other:a:b:c:d:e:f", "it does not begin with urn:noetl:"),
    ("urn:noetl:a:b:c:d:e", "it has 5 parts after urn:noetl:, not 6"),
    ("urn:noetl:a:b:c:d:e:f:g", "it has 7 parts after urn:noetl:, not 6"),
    ("urn:noetl:a:b:c:d::f", "name is empty"),
    ("urn:noetl:a:b:c:d:e:f?=q", "a name has no query"),
    ("urn:noetl:a:b:c:d/x:e:f", "character '/' must be percent-encoded"),
    ("urn:noetl:execution:b:c:d:e:f", "a tenant cannot be called 'execution'"),
    ("urn:noetl:a:b:results:42:e:f", "'results/42' begins a result's name"),
    (f"urn:noetl:a:b:payloads:sha256:{DIGEST}:v1", "'payloads/sha256' begins a payload's name"),
]


@pytest.mark.parametrize(("text", "rule"), REFUSED, ids=[repr(text[:50]) for text, _ in REFUSED])
def test_a_refusal_names_the_text_and_the_rule(text: str, rule: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        parse(text)
    message = str(refusal.value)
    assert message.startswith(repr(text)[:60].rstrip("'"))
    assert "is not a valid name: " in message
    assert rule in message
    assert len(message) < 400


@pytest.mark.parametrize(
    ("parts", "rule"),
    [
        ({"tenant": "tenant"}, "a tenant cannot be called 'tenant': noetl://tenant/... is an infrastructure name"),
        ({"tenant": "execution"}, "a tenant cannot be called 'execution'"),
        ({"project": ".."}, "project '..' is a relative path"),
        ({"kind": ""}, "kind is empty"),
        ({"path": ()}, "a resource of kind 'genomics' needs a path"),
        ({"path": ("a", "")}, "path segment is empty"),
        ({"path": ("a\tb",)}, "holds the control character U+0009"),
        ({"version": ""}, "version is empty"),
        ({"kind": "results", "path": ("42", "x")}, "'results/42' begins a result's name, not a resource's"),
        ({"kind": "payloads", "path": ("sha256", DIGEST)}, "'payloads/sha256' begins a payload's name"),
        ({"path": ("x" * 2048,)}, "a name has at most 2048 bytes"),
    ],
)
def test_a_resource_that_could_be_misread_is_not_built(parts: dict[str, object], rule: str) -> None:
    fields = {"tenant": "a", "project": "b", "kind": "genomics", "path": ("x",), "version": None} | parts
    with pytest.raises(InvalidName) as refusal:
        ResourceName(**fields)  # type: ignore[arg-type]  # a table of wrong values
    assert rule in str(refusal.value)


def test_the_longest_name_is_2048_bytes() -> None:
    text = "noetl://a/b/c/".ljust(2048, "d")
    assert str(parse(text)) == text
    with pytest.raises(InvalidName, match="has 2049"):
        parse(text + "d")


def test_an_older_reference_is_never_made_of_parts() -> None:
    with pytest.raises(InvalidName):
        LegacyResult("noetl://a/b/results/42/load~1/0/0/1@v1")


@given(names.filter(lambda name: not isinstance(name, LegacyResult)))
def test_nothing_of_ours_prints_as_an_older_reference(name: Name) -> None:
    assert not str(name).startswith("noetl://execution/")


def test_a_urn_is_another_spelling_of_a_resource() -> None:
    urn = "urn:noetl:stanford:lab-a:genomics:dataset:sample_reads:v3"
    assert to_urn(READS) == urn
    assert from_urn(urn) == READS
    assert parse(urn) == READS


@given(resources())
def test_every_urn_reads_back(name: ResourceName) -> None:
    if len(name.path) != 2 or name.version is None:
        return
    assert from_urn(to_urn(name)) == name
    assert parse(to_urn(name)) == name


@pytest.mark.parametrize(
    ("locator", "rule"),
    [
        ("noetl://a/b/c/d@v1", "has no URN: its path has 1 segments, not <type>/<name>"),
        ("noetl://a/b/c/d/e/f@v1", "has no URN: its path has 3 segments, not <type>/<name>"),
        ("noetl://a/b/c/d/e", "has no URN: it has no version"),
    ],
)
def test_a_resource_without_a_urn_says_why(locator: str, rule: str) -> None:
    name = parse(locator)
    assert isinstance(name, ResourceName)
    with pytest.raises(InvalidName) as refusal:
        to_urn(name)
    assert str(refusal.value) == f"'{locator}' {rule}"
