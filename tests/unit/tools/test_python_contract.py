"""What python code of a task finds bound, and what counts as its result."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from noetl.tools.python.tool import PythonTool
from tests.unit.tools.python_calls import call, error_of, result_of, running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tool() -> AsyncIterator[PythonTool]:
    async with running(workers=1) as made:
        yield made


pytestmark = pytest.mark.asyncio(loop_scope="module")


# --- Inputs -----------------------------------------------------------------------------------------------


async def test_inputs_are_parameters_that_may_be_read_and_reassigned(tool: PythonTool) -> None:
    assert await result_of(tool, "n = n + 1\nn += 1\nresult = n", n=40) == 42


async def test_nested_functions_comprehensions_and_lambdas_see_the_inputs(tool: PythonTool) -> None:
    code = """
def scaled(x):
    return x * factor
result = [scaled(x) + (lambda: factor)() for x in items if factor]
"""
    assert await result_of(tool, code, items=[1, 2], factor=10) == [20, 30]


@pytest.mark.parametrize(
    ("given", "arrives"),
    [
        ('{"a": [1, null]}', {"a": [1, None]}),
        (" [1, 2] ", [1, 2]),
        ("{'a': None, 'b': (1, True)}", {"a": None, "b": [1, True]}),
        ("{not an object}", "{not an object}"),
        ("[1, 2", "[1, 2"),
        ("[1, 2}", "[1, 2}"),
        ("12", "12"),
        ("", ""),
    ],
)
async def test_text_that_spells_an_object_arrives_as_one(tool: PythonTool, given: str, arrives: Any) -> None:
    assert await result_of(tool, "result = [x, input_data['x'], args['x']]", x=given) == [arrives] * 3


async def test_an_input_whose_name_is_no_identifier_is_in_the_mapping(tool: PythonTool) -> None:
    inputs = {"order-id": 7, "class": 8, "None": 9}
    assert await result_of(tool, "result = [args['order-id'], input_data['class'], args['None']]", **inputs) == [
        7,
        8,
        9,
    ]


async def test_modules_and_helpers_are_bound(tool: PythonTool) -> None:
    code = """
result = {
    "merged": deep_merge({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}, "b": 4}),
    "found": get_val({"lines": [{"sku": "A"}]}, "lines.0.sku"),
    "missing": get_val({"lines": []}, "lines.0.sku", "none"),
    "plain": make_serializable({"when": datetime.date(2026, 3, 3), "what": object}),
    "at": format_iso8601(datetime.datetime(2026, 3, 3, 12, tzinfo=datetime.timezone.utc)),
    "zone": now_utc().utcoffset().total_seconds(),
    "id": str(uuid.UUID(int=0)),
    "json": json.dumps([1]),
    "os": os.sep,
}
"""
    assert await result_of(tool, code) == {
        "merged": {"a": {"x": 1, "y": 3}, "b": 4},
        "found": "A",
        "missing": "none",
        "plain": {"when": "2026-03-03", "what": "<class 'object'>"},
        "at": "2026-03-03T12:00:00Z",
        "zone": 0.0,
        "id": "00000000-0000-0000-0000-000000000000",
        "json": "[1]",
        "os": "/",
    }


async def test_an_input_wins_over_what_is_bound(tool: PythonTool) -> None:
    inputs = {"os": 1, "args": 2, "get_val": 3, "context": 4}
    assert await result_of(tool, "result = [os, args, get_val, context]", **inputs) == [1, 2, 3, 4]


async def test_what_is_bound_may_be_reassigned(tool: PythonTool) -> None:
    assert await result_of(tool, "args = dict(args, n=2)\nresult = args", n=1, m=0) == {"n": 2, "m": 0}


async def test_the_context_is_there_for_code_that_asks(tool: PythonTool) -> None:
    context = {"workload": {"region": "eu"}, "ctx": {"page": 3}, "execution_id": "17"}
    code = "result = [context['workload']['region'], context['ctx']['page'], context['execution_id']]"
    assert (await tool.run(call(code, told=lambda: context))).result == ["eu", 3, "17"]


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({"data": 1, "ctx": {"data": 2}, "_prev": 9}, 1),
        ({"ctx": {"data": 2}, "workload": {"data": 3}, "_prev": 9}, 2),
        ({"ctx": {}, "workload": {"data": 3}, "_prev": 9}, 3),
        ({"ctx": {}, "_prev": {"rows": [1]}, "result": 5}, {"rows": [1]}),
        ({"result": 5}, 5),
    ],
)
async def test_data_that_was_not_given_is_the_name_or_the_previous_result(
    tool: PythonTool, context: dict[str, Any], expected: Any
) -> None:
    assert (await tool.run(call("def main():\n    return data", told=lambda: context))).result == expected
    assert (await tool.run(call("result = data", told=lambda: context, input={"data": 0}))).result == 0


async def test_data_that_nobody_has_is_not_bound(tool: PythonTool) -> None:
    error, _ = await error_of(tool, "result = data")
    assert error["code"] == "PY_NameError"


async def test_libs_are_imported_before_the_code(tool: PythonTool) -> None:
    libs = {"m": "math", "root": {"from": "math", "import": "sqrt"}, "json": "decimal", "p": "os.path"}
    code = "result = [m.floor(2.5), root(9), str(json.Decimal('1.5')), p.basename('a/b')]"
    assert (await tool.run(call(code, fields={"libs": libs}))).result == [2, 3.0, "1.5", "b"]


async def test_a_lib_that_is_not_there_is_an_error_of_the_task(tool: PythonTool) -> None:
    outcome = await tool.run(call("result = 1", fields={"libs": {"x": "no_such_module"}}))
    assert outcome.error is not None
    assert outcome.error["code"] == "PY_ModuleNotFoundError"


# --- Source -----------------------------------------------------------------------------------------------


async def test_a_script_goes_before_base64_and_base64_before_code(tool: PythonTool) -> None:
    script = {"source": {"type": "inline", "code": "result = 'script'"}}
    code_b64 = base64.encodebytes(b"result = 'base64'").decode()
    assert (await tool.run(call("result = 'code'", fields={"code_b64": code_b64}))).result == "base64"
    both = {"code_b64": code_b64, "script": script}
    assert (await tool.run(call("result = 'code'", fields=both))).result == "script"


async def test_a_task_without_code_and_one_that_is_no_base64_are_refused(tool: PythonTool) -> None:
    missing = await tool.run(call())
    assert missing.error is not None
    assert (missing.error["kind"], missing.error["code"]) == ("schema", "FIELD_MISSING")
    wrong = await tool.run(call(fields={"code_b64": "!"}))
    assert wrong.error is not None
    assert wrong.error["kind"] == "parse"


async def test_future_imports_globals_and_classes_work_as_in_a_file(tool: PythonTool) -> None:
    code = """
from __future__ import annotations
from dataclasses import dataclass
count = 0
@dataclass
class Order:
    id: int
    note: Missing = None
def bump():
    global count
    count += step
    return Order(count)
bump()
result = [bump(), count]
"""
    assert await result_of(tool, code, step=2) == [{"id": 4, "note": None}, 4]


async def test_a_call_does_not_see_the_variables_of_an_earlier_one(tool: PythonTool) -> None:
    await result_of(tool, "global kept\nkept = 1\nresult = kept")
    error, _ = await error_of(tool, "result = kept")
    assert error["code"] == "PY_NameError"


# --- Result -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("return n + 1", 4),
        ("result = 1\nreturn n", 3),
        ("if n > 5:\n    return 'big'\nresult = 'small'", "small"),
        ("result = 1\nreturn", None),
        ("result = None", None),
        ("result: dict = {'a': 1}", {"a": 1}),
        ("for result in range(3): pass", 2),
        ("[result := x for x in range(5)]", 4),
        ("import math as result\nresult = result.pi > 3", True),
        ("def f():\n    result = 1\ndef main(): return 'main'", "main"),
        ("result = 1\ndel result\ndef main(): return 'main'", "main"),
        ("result = 1\ndef main(): return 'main'", 1),
        ("async def main(n): return n * 2", 6),
        ("import asyncio\nawait asyncio.sleep(0)\nresult = n", 3),
        ("async def double(x): return x * 2\nreturn [await double(x) for x in range(n)]", [0, 2, 4]),
    ],
)
async def test_the_result_is_a_return_or_result_or_main(tool: PythonTool, code: str, expected: Any) -> None:
    assert await result_of(tool, code, n=3) == expected


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("def main(): return 'none'", "none"),
        ("def main(a, b=5): return [a, b]", [1, 5]),
        ("def main(input_data, args, context): return [input_data, args['z'], context]", [{"a": 1, "z": 2}, 2, {}]),
        ("def main(a, **kwargs): return [a, kwargs]", [1, {"z": 2}]),
        ("def main(a, /, *rest, z): return [a, rest, z]", [1, [], 2]),
        ("main = lambda z: z", 2),
    ],
)  # fmt: skip
async def test_main_is_given_what_its_parameters_name(tool: PythonTool, definition: str, expected: Any) -> None:
    assert await result_of(tool, definition, a=1, z=2) == expected


async def test_a_parameter_of_main_that_nothing_fills_is_an_error(tool: PythonTool) -> None:
    error, _ = await error_of(tool, "def main(missing): return 1")
    assert (error["kind"], error["code"]) == ("schema", "PY_TypeError")


async def test_an_input_named_result_or_main_is_not_a_result(tool: PythonTool) -> None:
    found = await result_of(tool, "x = 1", result=5, main="m")
    assert found["status"] == "success"
    assert found["locals_keys"] == ["main", "result", "x"]
    assert found["message"]
