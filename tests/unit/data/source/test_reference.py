"""The reference page has every option, and no other."""

from __future__ import annotations

from noetl.data.source import options
from tests.docs.test_docs import in_code, table_rows


def test_the_page_has_every_option() -> None:
    said = [in_code(cells[0])[0] for cells in table_rows("data-source.md", "Options")]
    every = {*options._ANYWHERE, *options._EVENTS, *options._KEPT} - {"path"}  # that is what `load` is given
    assert (len(said), set(said)) == (len(every), every)
