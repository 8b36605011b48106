from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import InvalidName
from noetl.kernel.names import (
    CommandSubject,
    EventSubject,
    Name,
    from_subject,
    parse,
    parse_command_subject,
    parse_event_subject,
    to_subject,
)
from tests.unit.kernel.names.strategies import names, numbers, segments, tenants

_TOKENS = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")

events = st.builds(
    EventSubject,
    tenant=tenants,
    org=segments,
    execution=st.none() | numbers,
    shard=st.integers(0, 255),
    sparse=st.booleans(),
)
commands = st.builds(CommandSubject, pool=segments, execution=st.none() | numbers)


@pytest.mark.parametrize(
    ("locator", "subject"),
    [
        ("noetl://acme/risk/models/model/fraud@2026-05-29", "noetl.names.acme.risk.models.model.fraud.@2026-05-29"),
        ("noetl://acme/risk/datasets/a.parquet", "noetl.names.acme.risk.datasets.a%2Eparquet"),
        ("noetl://acme/risk/datasets/a%20b@1.0", "noetl.names.acme.risk.datasets.a%20b.@1%2E0"),
        (
            "noetl://acme/risk/results/42/score~1/e1.s0.f3/5/1~call.2@v1",
            "noetl.names.acme.risk.results.42.score~1.e1%2Es0%2Ef3.5.1~call%2E2.@v1",
        ),
        ("noetl://tenant/acme/node/n7", "noetl.names.tenant.acme.node.n7"),
        ("noetl://execution/42/result/a%2Eb/r*1", "noetl.names.execution.42.result.a%252Eb.r%2A1"),
    ],
)
def test_a_name_becomes_a_readable_subject(locator: str, subject: str) -> None:
    assert to_subject(parse(locator)) == subject
    assert str(from_subject(subject)) == locator


@given(names)
def test_every_name_comes_back_from_its_subject(name: Name) -> None:
    subject = to_subject(name)
    assert _TOKENS.fullmatch(subject)
    assert subject.isascii()
    assert from_subject(subject) == name


@given(names, names)
def test_different_names_never_share_a_subject(one: Name, other: Name) -> None:
    assert (one == other) == (to_subject(one) == to_subject(other))


@pytest.mark.parametrize(
    ("subject", "rule"),
    [
        ("", "it does not begin with noetl.names."),
        ("noetl.events.a.b.1.s0001", "it does not begin with noetl.names."),
        ("noetl.names.a.b.c.*", "its canonical spelling is 'noetl.names.a.b.c.%2A'"),
        ("noetl.names.a.b.c.>", "character '>' must be percent-encoded"),
        ("noetl.names.a.b.c..d", "it has an empty segment"),
        ("noetl.names.a.b.c/d", "its canonical spelling is 'noetl.names.a.b.c.d'"),
        ("noetl.names.a.b.c.d@v1", "its canonical spelling is 'noetl.names.a.b.c.d.@v1'"),
        ("noetl.names.a.b.@v1.c.d", "'@' stands once"),
        ("noetl.names.a.b.c.%7Ed", "its canonical spelling is 'noetl.names.a.b.c.~d'"),
        ("noetl.names.a.b.c.d e", "whitespace"),
    ],
)
def test_a_subject_we_did_not_make_is_refused(subject: str, rule: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        from_subject(subject)
    assert str(refusal.value).startswith(f"{subject!r} is not a subject of ours: ")
    assert rule in str(refusal.value)


def test_events_and_commands_have_their_subjects() -> None:
    event = EventSubject(tenant="acme", org="care", execution=42, shard=7)
    assert str(event) == "noetl.events.acme.care.42.s0007"
    assert str(CommandSubject(pool="shared", execution=42)) == "noetl.commands.shared.42"


def test_appends_beside_the_dense_stream_have_their_own_subject() -> None:
    sparse = EventSubject(tenant="acme", org="care", execution=42, shard=7, sparse=True)
    assert str(sparse) == "noetl.events.acme.care.42.s0007.sparse"


def test_work_of_no_execution_is_published_under_a_dash() -> None:
    event = EventSubject(tenant="acme", org="care", execution=None, shard=7)
    assert str(event) == "noetl.events.acme.care.-.s0007"
    assert str(CommandSubject(pool="system", execution=None)) == "noetl.commands.system.-"


@given(events)
def test_every_event_subject_reads_back(subject: EventSubject) -> None:
    assert _TOKENS.fullmatch(str(subject))
    assert parse_event_subject(str(subject)) == subject


@given(commands)
def test_every_command_subject_reads_back(subject: CommandSubject) -> None:
    assert _TOKENS.fullmatch(str(subject))
    assert parse_command_subject(str(subject)) == subject


@pytest.mark.parametrize(
    ("subject", "rule"),
    [
        ("noetl.commands.shared.1", "the form is noetl.events.<tenant>.<org>.<execution>.<shard>"),
        ("noetl.events.a.b.1", "the form is noetl.events."),
        ("noetl.events.a.b.1.sparse", "the form is noetl.events."),
        ("noetl.events.a.b.1.s0001.dense", "the form is noetl.events."),
        ("noetl.events.a.b.x.s0001", "execution 'x' is not a decimal number"),
        ("noetl.events.a.b.1.s0999", "'s0999' is not a shard label"),
        ("noetl.events.*.b.1.s0001", "its canonical spelling is"),
        ("noetl.events.a..1.s0001", "organization is empty"),
        ("noetl.events.tenant.b.1.s0001", "a tenant cannot be called 'tenant'"),
        ("noetl.events.a.b.%2D.s0001", "its canonical spelling is"),
    ],
)
def test_another_event_subject_is_refused(subject: str, rule: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        parse_event_subject(subject)
    assert rule in str(refusal.value)


@pytest.mark.parametrize(
    ("subject", "rule"),
    [
        ("noetl.events.a.b.1.s0001", "the form is noetl.commands.<pool>.<execution>"),
        ("noetl.commands.shared", "the form is noetl.commands.<pool>.<execution>"),
        ("noetl.commands.shared.>", "execution '>' is not a decimal number"),
        ("noetl.commands.*.1", "its canonical spelling is 'noetl.commands.%2A.1'"),
        ("noetl.commands..1", "pool is empty"),
    ],
)
def test_another_command_subject_is_refused(subject: str, rule: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        parse_command_subject(subject)
    assert rule in str(refusal.value)
