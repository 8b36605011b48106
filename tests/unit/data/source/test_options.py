"""What a reader is asked for, and what is refused with a reason."""

from __future__ import annotations

import pytest

from noetl.data.source.locators import DatasetLocator, EventsLocator, KeptLocator, Locator, read_locator
from noetl.data.source.options import read_options
from noetl.errors import InvalidInput

RESULT = "noetl://acme/sales/results/7/load~1/0/0/1@v1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("events", EventsLocator()),
        ("events/71", EventsLocator(71)),
        ("noetl://acme/sales/events/71", EventsLocator(71, "acme")),
        ("datasets/totals", DatasetLocator("datasets/totals")),
        ("noetl://acme/sales/datasets/a/b", DatasetLocator("noetl://acme/sales/datasets/a/b")),
        (RESULT, KeptLocator(RESULT)),
        ("results/71/load it", KeptLocator("noetl://execution/71/result/load%20it/last")),
        (
            "noetl://acme/sales/payloads/sha256/" + "ab" * 32,
            KeptLocator("noetl://acme/sales/payloads/sha256/" + "ab" * 32),
        ),
    ],
)
def test_locators(text: str, expected: Locator) -> None:
    assert read_locator(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "nothing is named"),
        ("events/abc", "not the id of an execution"),
        ("results/71", "names no step"),
        ("models/a", "not something that can be read"),
        ("datasets", "not something that can be read"),
        ("noetl://acme/sales/datasets/a@v2", "has a version"),
        ("noetl://acme/sales/events/a/b", "names no events"),
        ("noetl://tenant/acme/org/o", "names a place"),
        ("noetl://acme//x", "empty segment"),
    ],
)
def test_what_names_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_locator(text)


def test_options_are_read_in_any_case() -> None:
    options = read_options(
        {
            "path": "events",
            "FROMPOSITION": "3",
            "toPosition": "9",
            "types": "a.b, c.d",
            "executionid": "7",
            "tenant": "*",
        }
    )
    events = options.events
    assert (events.first, events.last, events.types, events.execution_id) == (3, 9, ("a.b", "c.d"), 7)
    assert options.tenant == "*"
    assert read_options({"locator": "events", "fromPosition": "latest"}).events.first is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "events", "form_position": "1"}, "did you mean fromPosition"),
        ({"path": "events", "zzz": "1"}, "there is no option 'zzz'.*options: path"),
        ({"path": "events", "fromPosition": "0"}, "at least 1 or latest"),
        ({"path": "events", "fromPosition": "9", "toPosition": "8"}, "comes before"),
        ({"path": "events", "lineage": "true"}, "means nothing for events"),
        ({"path": "datasets/a", "types": "x"}, "means nothing for a dataset"),
        ({"path": "datasets/a", "tenant": "*"}, "only events"),
        ({"path": "datasets/a", "lineage": "true", "locator": "events"}, "both 'datasets/a' and 'events'"),
        ({"path": "results/1/a", "lineage": "maybe"}, "not true or false"),
        ({"path": "events/7", "executionId": "8"}, "leave one out"),
        ({"path": "noetl://acme/sales/events/7", "tenant": "other"}, "option tenant says"),
        ({"path": "events", "maxRowsPerTrigger": "none"}, "option maxRowsPerTrigger"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_options(options)
