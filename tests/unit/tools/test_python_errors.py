"""What a task is told when its python code fails."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from noetl.tools.python.tool import PythonTool
from tests.unit.tools.python_calls import call, error_of, result_of, running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tool() -> AsyncIterator[PythonTool]:
    async with running(workers=1) as made:
        yield made


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("code", "kind", "code_of_error", "retryable"),
    [
        ("raise ConnectionRefusedError('no')", "connection", "PY_ConnectionRefusedError", True),
        ("raise TimeoutError('late')", "timeout", "PY_TimeoutError", True),
        ("json.loads('{')", "parse", "PY_JSONDecodeError", False),
        ("{}['x']", "schema", "PY_KeyError", False),
        ("[][1]", "schema", "PY_IndexError", False),
        ("None.x", "schema", "PY_AttributeError", False),
        ("1 + 'a'", "schema", "PY_TypeError", False),
        ("raise ValueError('bad')", "transform", "PY_ValueError", False),
        ("assert False", "transform", "PY_AssertionError", False),
        ("1 / 0", "transform", "PY_ZeroDivisionError", False),
        ("import sys; sys.exit(0)", "transform", "PY_SystemExit", False),
        ("raise KeyboardInterrupt", "transform", "PY_KeyboardInterrupt", False),
        ("class ConnectionError(Exception): pass\nraise ConnectionError", "connection", "PY_ConnectionError", True),
        ("result = object()", "schema", "RESULT_NOT_SERIALISABLE", False),
        ("def f(): return f()\nf()", "transform", "PY_RecursionError", False),
        ("x = (", "transform", "PY_SyntaxError", False),
        ("yield 1", "transform", "PY_SyntaxError", False),
        ("if True:\nx = 1", "transform", "PY_IndentationError", False),
    ],
)  # fmt: skip
async def test_the_kind_follows_from_the_class(
    tool: PythonTool, code: str, kind: str, code_of_error: str, retryable: bool
) -> None:
    error, _ = await error_of(tool, code)
    assert (error["kind"], error["code"], error["retryable"]) == (kind, code_of_error, retryable)


async def test_the_message_is_that_of_the_exception(tool: PythonTool) -> None:
    assert (await error_of(tool, "raise ValueError('no stock for A-17')"))[0]["message"] == "no stock for A-17"
    assert (await error_of(tool, "{}['sku']"))[0]["message"] == "KeyError: 'sku'"
    assert (await error_of(tool, "raise ValueError"))[0]["message"] == "ValueError"
    assert (await error_of(tool, "raise ValueError('\\ud800')"))[0]["message"] == "\\ud800"


async def test_an_exception_that_cannot_be_printed_is_still_reported(tool: PythonTool) -> None:
    code = "class Odd(Exception):\n    def __str__(self): raise RuntimeError\nraise Odd"
    error, _ = await error_of(tool, code)
    assert error["code"] == "PY_Odd"


async def test_the_traceback_begins_in_the_code_and_counts_its_lines(tool: PythonTool) -> None:
    code = "def half(x):\n    return x / 0\n\nresult = half(n)"
    error, outcome = await error_of(tool, code, n=4)
    assert error["line"] == 2
    assert outcome.extra["py"]["exception"] == "ZeroDivisionError"
    traceback = outcome.extra["py"]["traceback"].splitlines()
    assert traceback[:2] == ["Traceback (most recent call last):", '  File "<code>", line 4, in <code>']
    assert "    return x / 0" in traceback
    assert "contract.py" not in outcome.extra["py"]["traceback"]


async def test_the_line_is_that_of_the_code_also_when_a_library_raises(tool: PythonTool) -> None:
    error, outcome = await error_of(tool, "x = 1\njson.loads('nonsense')")
    assert error["line"] == 2
    assert "decoder.py" in outcome.extra["py"]["traceback"]


async def test_a_syntax_error_has_its_line(tool: PythonTool) -> None:
    error, outcome = await error_of(tool, "a = 1\nb = = 2\n")
    assert (error["line"], error["message"]) == (2, "invalid syntax")
    assert "b = = 2" in outcome.extra["py"]["traceback"]


async def test_a_long_message_is_cut(tool: PythonTool) -> None:
    error, outcome = await error_of(tool, "raise ValueError('x' * 10_000_000)")
    assert len(error["message"]) < 5_000
    assert len(outcome.extra["py"]["traceback"]) < 20_000


async def test_inputs_that_are_no_json_are_refused_here(tool: PythonTool) -> None:
    outcome = await tool.run(call("result = 1", input={"x": object()}))
    assert outcome.error is not None
    assert outcome.error["kind"] == "schema"


async def test_a_failed_call_leaves_the_process_as_it_was(tool: PythonTool) -> None:
    before = await result_of(tool, "result = os.getpid()")
    spoil = "os.environ['LEFT'] = '1'\nos.environ = {}\nos.chdir('/')\nimport sys\nsys.path.clear()\nsys.stdout = None"
    await error_of(tool, f"{spoil}\n1 / 0")
    assert await result_of(
        tool, "import fractions\nresult = [os.getpid(), 'LEFT' in os.environ, os.getcwd() == '/']"
    ) == [
        before,
        False,
        False,
    ]


async def test_the_place_is_a_line_and_where_it_is_known_its_columns(tool: PythonTool) -> None:
    error, _ = await error_of(tool, "rows = [1]\nresult = 1 + rows[7]\n")
    assert (error["line"], error["column"], error["end_column"]) == (2, 14, 21)
    error, _ = await error_of(tool, "def f(n):\n    return 1 / n\nresult = f(0)\n")
    assert (error["line"], error["column"], error["end_column"]) == (2, 12, 17)
    error, _ = await error_of(tool, "raise ValueError(\n    'over two lines')\n")
    assert (error["line"], "column" in error) == (1, False)


async def test_the_names_that_were_there_are_told_and_no_values(tool: PythonTool) -> None:
    _, outcome = await error_of(tool, "secret = 'hush'\nresult = 1 / 0\n", given=1)
    assert outcome.extra["py"]["locals"] == ["given", "secret"]
    many = "\n".join(f"v{n} = {n}" for n in range(500))
    _, outcome = await error_of(tool, f"{many}\n1 / 0\n")
    assert len(outcome.extra["py"]["locals"]) == 40
