from __future__ import annotations

import pytest

from noetl.kernel.fold.execution import HANDLERS
from noetl.kernel.fold.others import REGISTRY_HANDLERS, SUBSCRIPTION_HANDLERS, TENANT_HANDLERS
from noetl.kernel.vocabulary import KNOWN_TYPES, TERMINAL_TYPES, canonical_type


@pytest.mark.parametrize(
    ("older", "today"),
    [
        ("playbook_initialized", "playbook.initialized"),
        ("playbook_started", "playbook.initialized"),
        ("playbook.started", "playbook.initialized"),
        ("playbook_completed", "playbook.completed"),
        ("playbook_failed", "playbook.failed"),
        ("playbook_cancelled", "playbook.cancelled"),
        ("execution.cancelled", "playbook.cancelled"),
    ],
)
def test_older_spellings_are_read(older: str, today: str) -> None:
    assert canonical_type(older) == today


@pytest.mark.parametrize("event_type", [*sorted(KNOWN_TYPES), "invoice.paid", "step_enter", "play_book"])
def test_every_other_spelling_stays(event_type: str) -> None:
    assert canonical_type(event_type) == event_type


def test_terminal_types_are_known_and_end_in_upper_case() -> None:
    assert set(TERMINAL_TYPES) <= KNOWN_TYPES
    assert all(status == event_type.rpartition(".")[2].upper() for event_type, status in TERMINAL_TYPES.items())


def test_every_known_type_has_a_meaning_and_only_seals_and_batches_have_it_twice() -> None:
    names = [*HANDLERS, *REGISTRY_HANDLERS, *SUBSCRIPTION_HANDLERS, *TENANT_HANDLERS]
    assert set(names) == set(KNOWN_TYPES)
    assert sorted(name for name in set(names) if names.count(name) > 1) == [
        "batch.accepted", "batch.completed", "batch.failed", "batch.processing", "stream.sealed",
    ]  # fmt: skip
