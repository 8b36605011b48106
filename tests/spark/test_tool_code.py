"""The code of spark tasks: modules beside the playbook, what it prints, and errors with their place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.spark.test_tool import ORDERS, Desk, desk

if TYPE_CHECKING:
    from noetl.tools.base import Outcome

__all__ = ["desk"]

USES = """
import helpers
from helpers import doubled
from pyspark.sql.functions import udf

@udf("int")
def tripled(value):
    return helpers.tripled(value)

@udf("int")
def late(value):
    import helpers.deep as deep
    return deep.many(value)

def main(spark):
    print("answer", helpers.ANSWER)
    frame = spark.range(1, 2, 1, 1)
    return frame.select(udf(doubled, "int")("id").alias("d"), tripled("id").alias("t"), late("id").alias("m"))
"""


def write_helpers(place: Path, times: int) -> Path:
    package = place / "helpers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        f"import threading\nANSWER = {times}\nLOCK = threading.Lock()\n\n"
        f"def doubled(value):\n    return int(value) * {2 * times}\n\n"
        f"def tripled(value):\n    with LOCK:\n        return int(value) * {3 * times}\n"
    )
    (package / "deep.py").write_text(f"def many(value):\n    return int(value) * {100 * times}\n")
    return place


class TestModules:
    async def test_main_and_functions_on_executors_import_what_is_beside_the_playbook(self, desk: Desk) -> None:
        places = [write_helpers(desk.place / name, times) for name, times in (("one", 1), ("ten", 10))]
        calls = [msgspec.structs.replace(desk.call(code=USES), directory=place) for place in places]
        outcomes = await asyncio.gather(*(desk.registry.run(call) for call in calls))
        for outcome, times in zip(outcomes, (1, 10), strict=True):
            assert outcome.error is None, outcome.error["message"]
            assert outcome.result["preview"] == [{"d": 2 * times, "t": 3 * times, "m": 100 * times}]
            assert outcome.logs == f"answer {times}\n"

    async def test_another_directory_does_not_have_them(self, desk: Desk) -> None:
        (desk.place / "empty").mkdir()
        late = (
            "from pyspark.sql.functions import udf\n\n@udf('int')\ndef late(v):\n    import helpers\n    return 1\n\n"
        )
        code = late + "def main(spark):\n    return spark.range(1).select(late('id').alias('a'))\n"
        call = msgspec.structs.replace(desk.call(code=code), directory=desk.place / "empty")
        outcome = await desk.registry.run(call)
        assert outcome.error is not None
        assert (outcome.error["code"], outcome.error["line"]) == ("PY_ModuleNotFoundError", 5)


class TestPrinting:
    async def test_what_main_prints_is_there_also_when_it_fails(self, desk: Desk) -> None:
        code = "def main(spark):\n    spark.range(1).show()\n    print('then')\n    raise KeyError('gone')\n"
        outcome = await desk.run(code=code)
        assert outcome.error is not None
        assert (outcome.error["code"], outcome.error["line"]) == ("PY_KeyError", 4)
        assert "| id|" in outcome.logs
        assert outcome.logs.endswith("then\n")


class TestPlaces:
    """`line` and `column` are those of the field, from which the line of the file follows."""

    async def failure(self, desk: Desk, **fields: Any) -> Outcome:
        outcome = await desk.run(inputs={"orders": {"rows": ORDERS}}, **fields)
        assert outcome.error is not None
        assert "org.apache" not in outcome.error["message"]
        assert "JVM stacktrace" not in outcome.error["message"]
        return outcome

    async def test_an_error_on_an_executor_has_the_line_of_the_function(self, desk: Desk) -> None:
        code = (
            "from pyspark.sql.functions import udf\n\n"
            "def broken(value):\n    if value > 90:\n        raise ValueError(f'row {value}')\n    return 1\n\n"
            "def main(spark, orders):\n    return orders.select(udf(broken, 'int')('cents').alias('a'))\n"
        )
        error = (await self.failure(desk, code=code)).error
        assert error is not None
        assert (error["code"], error["line"]) == ("PY_ValueError", 5)
        assert 'File "<load.work>", line 5, in broken\n    raise ValueError' in error["message"]
        assert "ValueError: row 100" in error["message"]

    async def test_a_query_that_cannot_be_parsed(self, desk: Desk) -> None:
        error = (await self.failure(desk, sql="\nSELECT id\nFROMM orders WHERE\n")).error
        assert error is not None
        assert (error["code"], error["line"]) == ("SPARK_ANALYSIS", 3)
        assert "yntax error" in error["message"]

    async def test_a_column_that_is_not_there(self, desk: Desk) -> None:
        error = (await self.failure(desk, sql="SELECT id,\n  cent FROM orders")).error
        assert error is not None
        assert (error["code"], error["line"], error["column"]) == ("SPARK_ANALYSIS", 2, 3)
        assert "cents" in error["message"]  # what it could have been

    async def test_a_view_that_is_no_input(self, desk: Desk) -> None:
        error = (await self.failure(desk, sql="SELECT *\nFROM order")).error
        assert error is not None
        assert (error["line"], error["column"]) == (2, 6)
        assert "there is no view or table 'order': the inputs of the task are orders" in error["message"]
        assert "did you mean 'orders'?" in error["message"]

    async def test_a_value_in_a_row_that_cannot_be_cast(self, desk: Desk) -> None:
        error = (await self.failure(desk, sql="SELECT id,\n  CAST(region AS int) AS r FROM orders")).error
        assert error is not None
        assert (error["kind"], error["line"], error["column"]) == ("transform", 2, 3)
        assert "'s'" in error["message"] or "'n'" in error["message"]

    async def test_a_query_inside_of_code_has_the_line_of_the_code(self, desk: Desk) -> None:
        code = "def main(spark, orders):\n    x = 1\n    return spark.sql('SELECT nothing FROM orders')\n"
        error = (await self.failure(desk, code=code)).error
        assert error is not None
        assert (error["code"], error["line"]) == ("SPARK_ANALYSIS", 3)

    async def test_code_that_is_no_python(self, desk: Desk) -> None:
        error = (await self.failure(desk, code="def main(spark):\n    return (\n")).error
        assert error is not None
        assert (error["code"], error["line"]) == ("PY_SyntaxError", 2)

    @pytest.mark.parametrize("check", ["totals > 0", "cents >"])
    async def test_a_check_that_means_nothing_is_named(self, desk: Desk, check: str) -> None:
        checks = [{"name": "fine", "check": "id > 0"}, {"name": "bad", "check": check, "on_fail": "fail"}]
        error = (await self.failure(desk, sql="SELECT * FROM orders", expect=checks)).error
        assert error is not None
        assert "expect 'bad'" in error["message"]
        assert "line" not in error
