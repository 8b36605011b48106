"""Timetables: the moments that a cron expression means in a time zone."""

from __future__ import annotations

import difflib
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from cronsim import CronSim, CronSimError

from noetl.errors import InvalidInput

__all__ = ["Timetable"]

_MICROSECOND = timedelta(microseconds=1)
_MOST_CRON = 256
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HINT = "minute hour day month weekday, such as '0 6 * * 1-5'; with six fields the first is the second"


class Timetable:
    """When a cron expression comes due by the clocks of a zone.

    A fixed time that a zone skips in spring comes when its clocks go on, one that it repeats in autumn comes once;
    what is due every so often goes by the time that passes.
    """

    def __init__(self, cron: str, timezone: str) -> None:
        """Raises InvalidInput for what is no cron expression, never comes, or is no time zone."""
        self._zone = _zone(timezone)
        self._cron = cron
        if len(cron) > _MOST_CRON:
            raise InvalidInput(f"cron has more than {_MOST_CRON} characters", hint=_HINT)
        try:
            CronSim(cron, _EPOCH)
        except CronSimError as error:
            raise InvalidInput(f"cron '{cron}': {_said(str(error))}", hint=_HINT) from None

    def check(self, moment: int) -> None:
        """Raise InvalidInput if no time comes after a moment."""
        if self.after(moment) is None:
            raise InvalidInput(f"cron '{self._cron}' never comes in the next 50 years", hint=_HINT)

    def after(self, moment: int) -> int | None:
        """The first time after a moment, both in microseconds; None if there is none in the next 50 years."""
        return next(self.times(moment), None)

    def times(self, moment: int) -> Iterator[int]:
        """One after the other, all times after a moment."""
        began = (_EPOCH + timedelta(microseconds=moment)).astimezone(self._zone)
        for found in CronSim(self._cron, began):
            micros = (found - _EPOCH) // _MICROSECOND
            if micros > moment:  # in the hour that clocks repeat, the first of two alike may be behind us
                moment = micros
                yield micros


def _zone(name: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        _refuse(name)


def _refuse(name: str) -> NoReturn:
    known = {one.lower(): one for one in zoneinfo.available_timezones()}
    close = difflib.get_close_matches(name.lower(), known, n=1) or [
        one for one in known if one.rpartition("/")[2] == name.lower().replace(" ", "_")
    ]
    hint = f"did you mean '{known[close[0]]}'?" if close else "a name such as Europe/Paris or UTC"
    raise InvalidInput(f"there is no time zone '{name[:80]}'", hint=hint)


def _said(problem: str) -> str:
    if problem.startswith("Bad "):
        return f"the {problem.removeprefix('Bad ')} is not right"
    return "it has not five or six fields" if problem == "Wrong number of fields" else problem
