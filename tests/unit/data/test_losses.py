"""How a Spark that has gone shows in what a task raises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkValueError
from pyspark.sql.classic.dataframe import DataFrame

from noetl.data.tool import _is_loss


class Gone:
    """A frame of a Java process that ends in the middle of a question."""

    def schema(self) -> Any:
        raise Py4JError("An error occurred while calling o7.schema")


def test_a_silence_that_pyspark_takes_for_a_bad_schema_is_a_loss() -> None:
    frame: Any = SimpleNamespace(_jdf=Gone())
    read_schema: Any = DataFrame.__dict__["schema"]
    with pytest.raises(PySparkValueError, match="CANNOT_PARSE_DATATYPE") as raised:
        (read_schema.func if hasattr(read_schema, "func") else read_schema.fget)(frame)
    assert _is_loss(raised.value)


def test_a_fault_of_the_code_is_none() -> None:
    assert not _is_loss(ValueError("no such column"))
