"""The contract between code and the task it is in: what is bound, and what counts as the result."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

from noetl.tools.python.worker import helpers
from noetl.tools.python.worker.body import END, Body, Ending, compile_body
from noetl.tools.python.worker.offered import Offered
from noetl.tools.python.worker.values import as_object

__all__ = ["forget", "run"]

_MODULE_NAME = "noetl_code"
_MODULES = ("os", "json", "datetime", "uuid")
_MAPPINGS = ("input_data", "args", "context")
_OFFERED = (*_MAPPINGS, *_MODULES, *helpers.__all__)


def run(request: Mapping[str, Any], module: str = _MODULE_NAME) -> Any:
    """The result of the code with these inputs. Raises whatever the code raises.

    `module` is what the code is the content of, to classes that it defines; at any time one call has the name.
    """
    inputs = {name: as_object(value) for name, value in request["input"].items()}
    mappings = {"input_data": inputs, "args": inputs, "context": request.get("context", {})}
    names = _names(request, inputs)
    body = compile_body(request["code"], tuple(names), _OFFERED)
    for name in body.parameters:
        if name not in names:
            names[name] = mappings[name] if name in mappings else _offer(name)
    scope = _scope(names, module)
    value = _call(body, scope, names)
    if type(value) is not Ending:
        return value
    shared = {name: scope[name] for name in body.shared if name in scope}
    return _conclude(body, {**shared, **value.variables}, inputs, {**mappings, **inputs})


def forget(module: str = _MODULE_NAME) -> None:
    """Let go of the names of the last call: a table among them would stay mapped until the next one."""
    sys.modules.pop(module, None)


def _names(request: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    names: dict[str, Any] = {}
    if "data" in request:
        names["data"] = request["data"]
    if "libs" in request:
        names.update(_imports(request["libs"]))
    if "offered" in request:
        names.update({name: Offered(value) for name, value in request["offered"].items()})
    names.update(inputs)
    return names


def _imports(libs: Mapping[str, Any]) -> dict[str, Any]:
    """`{alias: module}` and `{alias: {from: module, import: name}}`."""
    return {alias: _import(wanted) for alias, wanted in libs.items()}


def _import(wanted: Any) -> Any:
    if isinstance(wanted, str):
        return import_module(wanted)
    if "from" in wanted and "import" in wanted:
        return getattr(import_module(wanted["from"]), wanted["import"])
    return import_module(wanted.get("from") or wanted["import"])


def _offer(name: str) -> Any:
    return import_module(name) if name in _MODULES else getattr(helpers, name)


def _scope(names: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The globals of the code: those of a module, because classes and dataclasses look theirs up."""
    module = ModuleType(name)
    sys.modules[name] = module
    scope = module.__dict__
    scope.update(names)
    scope[END] = Ending
    scope["__builtins__"] = builtins  # C libraries that import something look for it here, and abort without it
    return scope


def _call(body: Body, scope: dict[str, Any], names: Mapping[str, Any]) -> Any:
    function = FunctionType(body.code, scope)
    value = function(**{name: names[name] for name in body.parameters})
    return _await(value) if body.asynchronous else value


def _await(value: Awaitable[Any]) -> Any:
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def _conclude(body: Body, variables: Mapping[str, Any], inputs: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """The result of code that has reached its end without a `return`."""
    if "result" in body.assigned and "result" in variables:
        return variables["result"]
    main = variables.get("main")
    if "main" in body.defined | body.assigned and callable(main):
        return _call_main(main, inputs, arguments)
    kept = sorted(name for name in variables if name in inputs or name in body.assigned | body.defined)
    return {"status": "success", "message": "the code gave no result", "locals_keys": kept}


def _call_main(main: Callable[..., Any], inputs: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    import inspect

    positional: list[Any] = []
    named: dict[str, Any] = {}
    parameters = inspect.signature(main).parameters
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            named.update({key: value for key, value in inputs.items() if key not in parameters})
        elif parameter.kind is not parameter.VAR_POSITIONAL and name in arguments:
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(arguments[name])
            else:
                named[name] = arguments[name]
    value = main(*positional, **named)
    return _await(value) if inspect.isawaitable(value) else value
