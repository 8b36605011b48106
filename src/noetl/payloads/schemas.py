"""What a table is without its rows: a digest over names, types and nullability.

pyarrow prints types, and serialises schemas, a little differently from release to release. A digest that is
compared between processes, and years later, is taken over text of our own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from noetl.errors import InvalidInput
from noetl.kernel import canonical

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["schema_digest"]

_PLAIN = (
    ("NA", "null"),
    ("BOOL", "bool"),
    ("INT8", "int8"),
    ("INT16", "int16"),
    ("INT32", "int32"),
    ("INT64", "int64"),
    ("UINT8", "uint8"),
    ("UINT16", "uint16"),
    ("UINT32", "uint32"),
    ("UINT64", "uint64"),
    ("HALF_FLOAT", "float16"),
    ("FLOAT", "float32"),
    ("DOUBLE", "float64"),
    ("STRING", "utf8"),
    ("LARGE_STRING", "large_utf8"),
    ("STRING_VIEW", "utf8_view"),
    ("BINARY", "binary"),
    ("LARGE_BINARY", "large_binary"),
    ("BINARY_VIEW", "binary_view"),
    ("DATE32", "date32"),
    ("DATE64", "date64"),
    ("INTERVAL_MONTH_DAY_NANO", "month_day_nano_interval"),
)


def schema_digest(schema: pa.Schema) -> str:
    """The sha256 of what rows of this schema may hold. Metadata, which describes and does not decide, is left out."""
    return hashlib.sha256(canonical.encode([_field(field) for field in schema])).hexdigest()


def _field(field: pa.Field[Any]) -> list[Any]:
    return [field.name, _type(field.type), field.nullable]


def _inner(field: pa.Field[Any]) -> list[Any]:
    """The items of a list: writers call them `item` or `element`, which means nothing."""
    return [_type(field.type), field.nullable]


def _type(kind: Any) -> Any:
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return ["extension", kind.extension_name, _type(kind.storage_type)]
    plain, shaped = _tables()
    if (name := plain.get(kind.id)) is not None:
        return name
    if (describe := shaped.get(kind.id)) is not None:
        return describe(kind)
    raise InvalidInput(f"Arrow type '{kind}' has no place in a schema digest", hint="cast the column to another type")


def _union(kind: Any) -> list[Any]:
    members = [[code, *_field(kind.field(index))] for index, code in enumerate(kind.type_codes)]
    return ["union", kind.mode, members]


@cache
def _tables() -> tuple[dict[int, str], dict[int, Callable[[Any], list[Any]]]]:
    """How each type is written, by pyarrow's number for it."""
    from pyarrow import lib

    def number(name: str) -> int:
        found: int = getattr(lib, f"Type_{name}")
        return found

    shaped: dict[str, Callable[[Any], list[Any]]] = {
        "FIXED_SIZE_BINARY": lambda kind: ["fixed_binary", kind.byte_width],
        "TIME32": lambda kind: ["time32", kind.unit],
        "TIME64": lambda kind: ["time64", kind.unit],
        "TIMESTAMP": lambda kind: ["timestamp", kind.unit, kind.tz],
        "DURATION": lambda kind: ["duration", kind.unit],
        "DECIMAL32": lambda kind: ["decimal32", kind.precision, kind.scale],
        "DECIMAL64": lambda kind: ["decimal64", kind.precision, kind.scale],
        "DECIMAL128": lambda kind: ["decimal128", kind.precision, kind.scale],
        "DECIMAL256": lambda kind: ["decimal256", kind.precision, kind.scale],
        "LIST": lambda kind: ["list", _inner(kind.value_field)],
        "LARGE_LIST": lambda kind: ["large_list", _inner(kind.value_field)],
        "LIST_VIEW": lambda kind: ["list_view", _inner(kind.value_field)],
        "LARGE_LIST_VIEW": lambda kind: ["large_list_view", _inner(kind.value_field)],
        "FIXED_SIZE_LIST": lambda kind: ["fixed_list", kind.list_size, _inner(kind.value_field)],
        "STRUCT": lambda kind: ["struct", [_field(field) for field in kind]],
        "MAP": lambda kind: ["map", _inner(kind.key_field), _inner(kind.item_field), kind.keys_sorted],
        "DICTIONARY": lambda kind: ["dictionary", _type(kind.index_type), _type(kind.value_type), kind.ordered],
        "RUN_END_ENCODED": lambda kind: ["run_end", _type(kind.run_end_type), _type(kind.value_type)],
        "SPARSE_UNION": _union,
        "DENSE_UNION": _union,
    }
    return {number(name): text for name, text in _PLAIN}, {number(name): shape for name, shape in shaped.items()}
