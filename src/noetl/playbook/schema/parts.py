"""Small pieces that schemas are put together from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "ANY", "BOOLEAN", "CONDITION", "DURATION", "MAPPING", "NUMBER", "SIZE", "TEMPLATE", "TEXT", "TEXTS", "WHOLE",
    "Schema", "described", "document", "listed", "obj", "one_of", "ref",
]  # fmt: skip

Schema = dict[str, Any]

TEMPLATE: Schema = {"type": "string", "pattern": r"\{[{%]"}
TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
BOOLEAN: Schema = {"type": "boolean"}
MAPPING: Schema = {"type": "object"}
ANY: Schema = {}
CONDITION: Schema = {"type": ["string", "boolean", "number"]}
WHOLE: Schema = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^\s*\d+\s*$"}, TEMPLATE]}
NUMBER: Schema = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}
DURATION: Schema = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(us|ms|s|m|h|d)?\s*$"},
        TEMPLATE,
    ]
}
SIZE: Schema = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*([KMGTkmgt]i?)?[Bb]?\s*$"},
        TEMPLATE,
    ]
}


def described(schema: Schema, description: str, **more: Any) -> Schema:
    """A schema with words for the reader, and `default` or `examples` where they help."""
    return {**schema, "description": description, **more}


def one_of(words: Sequence[str], description: str, **more: Any) -> Schema:
    """One of a closed list of words."""
    return {"enum": list(words), "description": description, **more}


def listed(items: Schema, description: str, **more: Any) -> Schema:
    """A list."""
    return {"type": "array", "items": items, "description": description, **more}


def ref(name: str, description: str | None = None) -> Schema:
    """A part that has a name."""
    return {"$ref": f"#/$defs/{name}"} | ({"description": description} if description else {})


def obj(
    properties: Mapping[str, Schema], *, required: Sequence[str] = (), closed: bool = True, description: str = ""
) -> Schema:
    """A mapping with these keys."""
    return {
        "type": "object",
        **({"description": description} if description else {}),
        "properties": dict(properties),
        **({"required": list(required)} if required else {}),
        **({"additionalProperties": False} if closed else {}),
    }


def document(title: str, schema: Schema, parts: Mapping[str, Schema]) -> Schema:
    """A whole schema."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://noetl.io/schema/{title.lower()}.json",
        "title": f"NoETL {title}",
    }
    return {**head, **schema, "$defs": dict(parts)}
