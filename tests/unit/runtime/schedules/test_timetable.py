"""When a cron expression comes due, also where clocks are changed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from noetl.errors import InvalidInput
from noetl.kernel.time import format_time, parse_time
from noetl.runtime.schedules.timetable import Timetable


def times(cron: str, zone: str, after: str, count: int) -> list[str]:
    """The next times in UTC, to the second."""
    table = Timetable(cron, zone)
    found: list[str] = []
    moment: int | None = parse_time(after)
    for _ in range(count):
        assert moment is not None
        moment = table.after(moment)
        assert moment is not None
        found.append(format_time(moment)[:19])
    return found


def test_times_are_those_of_the_zone() -> None:
    assert times("0 6 * * 1-5", "Europe/Paris", "2026-07-03T05:00:00Z", 2) == [
        "2026-07-06T04:00:00", "2026-07-07T04:00:00",
    ]  # fmt: skip
    assert times("30 5 * * *", "Asia/Kolkata", "2026-07-03T00:00:00Z", 2) == [
        "2026-07-04T00:00:00", "2026-07-05T00:00:00",
    ]  # fmt: skip


def test_a_time_is_after_the_moment_and_never_at_it() -> None:
    assert times("*/5 * * * *", "UTC", "2026-07-03T00:05:00Z", 1) == ["2026-07-03T00:10:00"]
    assert times("*/5 * * * *", "UTC", "2026-07-03T00:04:59.999999Z", 1) == ["2026-07-03T00:05:00"]


def test_six_fields_begin_with_the_second() -> None:
    assert times("*/20 * * * * *", "UTC", "2026-07-03T00:00:01Z", 3) == [
        "2026-07-03T00:00:20", "2026-07-03T00:00:40", "2026-07-03T00:01:00",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("zone", "before", "skipped", "next_day"),
    [
        ("Europe/Paris", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00", "2026-03-30T00:30:00"),
        ("America/New_York", "2026-03-07T18:00:00Z", "2026-03-08T07:00:00", "2026-03-09T06:30:00"),
    ],
)
def test_in_spring_a_time_that_is_skipped_comes_when_the_clocks_go_on(
    zone: str, before: str, skipped: str, next_day: str
) -> None:
    assert times("30 2 * * *", zone, before, 2) == [skipped, next_day]


@pytest.mark.parametrize(
    ("zone", "before", "first", "next_day"),
    [
        ("Europe/Paris", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00", "2026-10-26T01:30:00"),
        ("America/New_York", "2026-10-31T18:00:00Z", "2026-11-01T05:30:00", "2026-11-02T06:30:00"),
    ],
)
def test_in_autumn_a_time_that_is_repeated_comes_once(zone: str, before: str, first: str, next_day: str) -> None:
    hour = 2 if zone == "Europe/Paris" else 1
    assert times(f"30 {hour} * * *", zone, before, 2) == [first, next_day]


@pytest.mark.parametrize(
    ("zone", "in_the_second_hour", "expected"),
    [
        ("Europe/Paris", "2026-10-25T01:15:00Z", "2026-10-26T01:30:00"),
        ("America/New_York", "2026-11-01T06:15:00Z", "2026-11-02T06:30:00"),
    ],
)
def test_who_begins_in_the_repeated_hour_gets_no_time_that_is_over(
    zone: str, in_the_second_hour: str, expected: str
) -> None:
    hour = 2 if zone == "Europe/Paris" else 1
    assert times(f"30 {hour} * * *", zone, in_the_second_hour, 1) == [expected]


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York"])
@pytest.mark.parametrize("change", ["2026-03-08", "2026-03-29", "2026-10-25", "2026-11-01"])
def test_what_is_due_every_so_often_goes_by_the_time_that_passes(zone: str, change: str) -> None:
    found = [parse_time(one) for one in times("*/30 * * * *", zone, f"{change}T00:00:00Z", 60)]
    assert {later - earlier for earlier, later in pairwise(found)} == {30 * 60_000_000}


@pytest.mark.parametrize(
    ("cron", "reason"),
    [
        ("99 * * * *", "cron '99 \\* \\* \\* \\*': the minute is not right"),
        ("0 25 * * *", "the hour is not right"),
        ("0 0 * * FUN", "the day-of-week is not right"),
        ("0 6 * *", "it has not five or six fields"),
        ("", "it has not five or six fields"),
        ("0 0 30 2 *", "the day-of-month is not right"),
        ("1" * 300, "more than 256 characters"),
    ],
)
def test_what_is_no_cron_is_refused_with_the_field_and_an_example(cron: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=rf"{reason}.*such as '0 6 \* \* 1-5'"):
        Timetable(cron, "UTC")


def test_what_never_comes_is_refused() -> None:
    table = Timetable("0 0 */20 * 1#5", "UTC")
    with pytest.raises(InvalidInput, match="never comes"):
        table.check(parse_time("2026-01-01"))


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("Europe/Pari", "did you mean 'Europe/Paris'"),
        ("paris", "did you mean 'Europe/Paris'"),
        ("New York", "did you mean 'America/New_York'"),
        ("/etc/passwd", "such as Europe/Paris"),
        ("../../etc/passwd", "such as Europe/Paris"),
        ("Europe", "such as|did you mean"),
        ("", "such as Europe/Paris"),
        ("x" * 5000, "such as Europe/Paris"),
        ("a\x00b", "such as"),
    ],
)
def test_what_is_no_time_zone_is_refused_with_what_it_may_have_been(zone: str, hint: str) -> None:
    with pytest.raises(InvalidInput, match=rf"there is no time zone.*{hint}"):
        Timetable("0 6 * * *", zone)
