"""Pages of an HTTP service, one after the other, as rows.

How the next page is asked for is said in one of three ways: `next` is where an answer has the address of the next
page; `cursor` where it has a mark, and the parameter that takes it; `page` is a parameter that counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urljoin

import msgspec

from noetl.data.sources.reading import Frame, Reading, mapping_of
from noetl.data.sources.spooling import ROWS_AT_ONCE, Spool
from noetl.data.sources.staging import frame_of
from noetl.errors import InvalidInput
from noetl.payloads.blocking import in_thread
from noetl.tools.values import Refused

__all__ = ["http_rows", "open_http", "value_at"]

_MOST_PAGES = 100_000
_OURS = ("data_path", "next", "cursor", "page", "max_pages", "auth")


async def open_http(said: Any, reading: Reading) -> Frame:
    """The rows of all pages."""
    spool = Spool(reading.place("http"))
    async for rows in http_rows(said, reading):
        await in_thread(spool.add, rows)
    return frame_of(await in_thread(spool.end))


async def http_rows(said: Any, reading: Reading) -> AsyncIterator[list[Any]]:
    """The rows of all pages, so many at a time. Raises InvalidInput, Refused."""
    options = mapping_of(said, "http", ("url",))
    ways = [way for way in ("next", "cursor", "page") if options.get(way) is not None]
    if len(ways) > 1:
        raise InvalidInput(f"http has {' and '.join(ways)}", hint="pages follow each other in one way; keep one")
    pages = _Pages(options, reading)
    rows: list[Any] = []
    while (found := await pages.next()) is not None:
        rows += found
        if len(rows) >= ROWS_AT_ONCE:
            yield rows
            rows = []
    if rows:
        yield rows


class _Pages:
    def __init__(self, options: dict[str, Any], reading: Reading) -> None:
        self._options = options
        self._reading = reading
        self._tool = reading.means.http()
        self._fields = {name: value for name, value in options.items() if name not in _OURS}
        self._most = int(options.get("max_pages") or _MOST_PAGES)
        self._seen = 0
        self._done = False
        page = options.get("page")
        self._page: dict[str, Any] | None = None if page is None else mapping_of(page, "http.page", ("param",))
        if self._page is not None:
            self._set_param(self._page["param"], self._page.get("first", 1))

    async def next(self) -> list[Any] | None:
        """The rows of the next page; None after the last. Raises Refused if the service did not answer well."""
        if self._done:
            return None
        if self._seen >= self._most:
            if "max_pages" not in self._options:
                raise InvalidInput(f"http: the pages do not end after {self._most}", hint="say max_pages")
            return None
        answer = await self._ask()
        self._seen += 1
        rows = value_at(answer, str(self._options.get("data_path") or ""))
        if not isinstance(rows, list):
            raise InvalidInput(
                f"http: page {self._seen} has no list at '{self._options.get('data_path') or '(the answer itself)'}'",
                hint="say where the rows are: data_path: data.items",
            )
        self._done = not self._turn(answer, rows)
        return rows

    async def _ask(self) -> Any:
        call = msgspec.structs.replace(
            self._reading.call, kind="http", fields=self._fields, input={}, effect_key="",
            auth=self._reading.auth(self._options.get("auth"), "http"),
        )  # fmt: skip
        outcome = await self._tool.run(call)
        if outcome.error is not None:
            raise Refused(outcome)
        result = outcome.result
        return result["data"] if isinstance(result, Mapping) and "data" in result else result

    def _turn(self, answer: Any, rows: list[Any]) -> bool:
        """Make ready for the next page; False if there is none."""
        if self._options.get("next") is not None:
            following = value_at(answer, str(self._options["next"]))
            if following:
                self._fields["url"] = urljoin(str(self._fields["url"]), str(following))
                self._fields.pop("params", None)  # the address has them
            return bool(following)
        if self._options.get("cursor") is not None:
            cursor = mapping_of(self._options["cursor"], "http.cursor", ("param",))
            mark = value_at(answer, str(cursor.get("path") or "next_cursor"))
            if mark:
                self._set_param(cursor["param"], mark)
            return bool(mark)
        if self._page is None or not rows or len(rows) < int(self._page.get("size") or 1):
            return False
        self._set_param(
            self._page["param"], int(self._page.get("first", 1)) + self._seen * int(self._page.get("step", 1))
        )
        return True

    def _set_param(self, name: Any, value: Any) -> None:
        self._fields["params"] = {**(self._fields.get("params") or {}), str(name): value}


def value_at(value: Any, path: str) -> Any:
    """What stands at a path such as `data.items` or `links.0.href`; None if there is nothing."""
    for part in filter(None, path.split(".")):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value
