"""Script sources: where the text of a task comes from when it is not in the playbook (DSL 9.17)."""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from noetl.errors import AccessRefused, NoetlError, NotFound, Unavailable
from noetl.kernel.event import Json
from noetl.payloads.resolver import TooLarge
from noetl.tools.base import Call, Outcome, failed
from noetl.tools.values import Refused, seconds

__all__ = ["load", "load_rendered"]

MAX_SCRIPT_BYTES = 8 << 20
_TIMEOUT = 30.0
_OBJECT_TIMEOUT = 120.0
_SCHEMES = {
    "": "file", "file": "file", "http": "http", "https": "https", "s3": "s3", "gs": "gcs", "gcs": "gcs",
    "az": "azure", "azure": "azure", "abfs": "azure", "abfss": "azure", "noetl": "noetl",
}  # fmt: skip
_OBJECTS = {"s3": "s3", "gcs": "gs", "azure": "az", "noetl": "noetl"}
"""Kinds of source that a resolver reads, and the scheme of an address that is given without one."""
_OPTIONS = ("region", "endpoint")


async def load(script: Any, call: Call) -> str | Outcome:
    """The text of a script as its source holds it, or the error that the task has."""
    uri, source = _parts(script)
    kind = str(source.get("type") or _kind_of(uri, source))
    if kind == "inline":
        return _inline(source)
    if kind == "file":
        return await _from_file(uri, source, call.directory)
    if kind in ("http", "https"):
        return await _from_http(str(source.get("path") or uri), source, call)
    if kind in _OBJECTS:
        return await _from_object(kind, uri, source, call)
    return failed("schema", "FIELD_INVALID", f"script.source.type: '{kind}' is not known")


async def load_rendered(script: Any, call: Call) -> str | Outcome:
    """The text of a script with its templates rendered. What stands in the playbook has been rendered already."""
    text = await load(script, call)
    if isinstance(text, Outcome) or _parts(script)[1].get("type") == "inline" or "{" not in text:
        return text
    from noetl.playbook.templates import TemplateError, render_code

    try:
        return render_code(text, _names(call))
    except TemplateError as error:
        return failed("schema", error.code, f"the script could not be rendered: {error}")


def _names(call: Call) -> Mapping[str, Any]:
    """What a script's templates see: the input, then the context, `ctx` and the workload by bare name."""
    scopes = [call.context.get(name) for name in ("ctx", "workload")]
    below = [scope for scope in scopes if isinstance(scope, dict)]
    return ChainMap({"input": call.input}, call.input, call.context, *below)


def _parts(script: Any) -> tuple[str, Json]:
    if isinstance(script, str):
        return script, {}
    if not isinstance(script, Mapping):
        return "", {}
    source = script.get("source")
    return str(script.get("uri") or ""), dict(source) if isinstance(source, Mapping) else {}


def _kind_of(uri: str, source: Json) -> str:
    if "code" in source:
        return "inline"
    return _SCHEMES.get(urlsplit(uri).scheme, urlsplit(uri).scheme)


def _inline(source: Json) -> str | Outcome:
    if source.get("code") is None:
        return failed("schema", "FIELD_MISSING", "an inline script needs source.code")
    return str(source["code"])


async def _from_file(uri: str, source: Json, directory: Path) -> str | Outcome:
    named = str(source.get("path") or uri)
    if not named:
        return failed("schema", "FIELD_MISSING", "a script from a file needs source.path or uri")
    path = directory / _path_of(named)
    try:
        return _text(await asyncio.to_thread(_read, path), str(path))
    except FileNotFoundError:
        return failed("not_found", "SCRIPT_NOT_FOUND", f"there is no script {path}")
    except OSError as error:
        return failed("storage_access", "SCRIPT_NOT_READABLE", f"script {path} cannot be read: {error.strerror}")


def _path_of(named: str) -> str:
    """`file:///whole/path`, and `file://path` or `file:path` from the directory of the call, as artifact has them."""
    if not named.startswith("file:"):
        return named
    text = unquote(named.removeprefix("file:").removeprefix("//"))
    return text.removeprefix("localhost") if text.startswith("localhost/") else text


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_SCRIPT_BYTES + 1)


async def _from_object(kind: str, uri: str, source: Json, call: Call) -> str | Outcome:
    """From where the resolver of this installation leads. A path without a scheme begins with the bucket."""
    address = str(source.get("path") or uri)
    if not address:
        return failed("schema", "FIELD_MISSING", f"a script from {kind} needs uri or source.path")
    if "://" not in address:
        address = f"{_OBJECTS[kind]}://{address.lstrip('/')}"
    if call.resolver is None:
        return failed("storage_access", "KIND_UNAVAILABLE", f"script source '{kind}' cannot be read here")
    options = {name: source[name] for name in _OPTIONS if source.get(name)}
    caller = call.caller(source.get("auth"), options)
    try:
        async with asyncio.timeout(seconds(source, "timeout", default=_OBJECT_TIMEOUT)):
            found = await call.resolver.read(address, caller, limit=MAX_SCRIPT_BYTES)
    except Refused as error:
        return error.outcome
    except (NoetlError, TimeoutError) as error:
        return _not_resolved(error, kind)
    if not isinstance(found, bytes):
        return failed("storage_access", "SCRIPT_NOT_TEXT", f"script {address} is not text but a result")
    return _text(found, address)


def _not_resolved(error: NoetlError | TimeoutError, kind: str) -> Outcome:
    message = f"the script could not be loaded: {str(error) or 'it took too long'}"
    if isinstance(error, TooLarge):
        return _too_large(f"from {kind}")
    if isinstance(error, NotFound):
        return failed("not_found", "SCRIPT_NOT_FOUND", message)
    passing = isinstance(error, Unavailable | TimeoutError) and not isinstance(error, AccessRefused)
    return failed("storage_access", "SCRIPT_NOT_READABLE", message, retryable=passing)


async def _from_http(url: str, source: Json, call: Call) -> str | Outcome:
    from noetl.tools.http import HttpTool

    fields = {name: source[name] for name in ("method", "headers") if source.get(name) is not None}
    fields |= {"url": url, "timeout": source.get("timeout") or _TIMEOUT}
    http = HttpTool()
    try:
        outcome = await http.run(Call(kind="http", fields=fields, auth=source.get("auth"), scratch=call.scratch))
    finally:
        await http.close()
    return _from_answer(outcome, url)


def _from_answer(outcome: Outcome, url: str) -> str | Outcome:
    if outcome.error is not None:
        return _not_loaded(outcome.error)
    if "_file" in outcome.result:
        return _too_large(url)
    text = outcome.result["data"]
    return (
        text
        if isinstance(text, str)
        else failed("storage_access", "SCRIPT_NOT_TEXT", f"script {url} is not text but {type(text).__name__}")
    )


def _not_loaded(error: Json) -> Outcome:
    missing = error["kind"] == "not_found"
    return failed(
        "not_found" if missing else "storage_access",
        "SCRIPT_NOT_FOUND" if missing else "SCRIPT_NOT_READABLE",
        f"the script could not be loaded: {error['message']}",
        retryable=error["retryable"],
    )


def _too_large(name: str) -> Outcome:
    limit = f"{MAX_SCRIPT_BYTES >> 20} MiB"
    return failed("storage_access", "SCRIPT_TOO_LARGE", f"script {name} is larger than {limit}")


def _text(content: bytes, name: str) -> str | Outcome:
    if len(content) > MAX_SCRIPT_BYTES:
        return _too_large(name)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        return failed("storage_access", "SCRIPT_NOT_TEXT", f"script {name} is not UTF-8 text: {error.reason}")
