"""Values that are rendered again and again, as the rows of a data stage do: their templates are found and read once.

What each kind of field does is said in `rendering`, and is the same here (a property test says so).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from noetl.playbook.templates.errors import TemplateError, TemplateSyntax, TemplateUndefined
from noetl.playbook.templates.host import Host
from noetl.playbook.templates.native import compile as compile_template
from noetl.playbook.templates.native import is_template

__all__ = ["Renders", "Warns", "prepared_code", "prepared_or_keep", "prepared_strict"]

Warns = Callable[[TemplateError], None]
"""Hears of a template that has failed where that is not an error."""
Renders = Callable[[Mapping[str, Any], Host, Warns], Any]
"""Renders one value."""


def prepared_strict(value: Any) -> Renders:
    """`render_strict` of a value."""

    def of_text(text: str) -> Renders:
        read = _reader(text)
        return lambda names, host, warn: read(names, strict=True, host=host)

    return _prepared(value, of_text)


def prepared_or_keep(value: Any, *, lazy: bool = False) -> Renders:
    """`render_or_keep` of a value."""

    def of_text(text: str) -> Renders:
        read = _reader(text)

        def kept(names: Mapping[str, Any], host: Host, warn: Warns) -> Any:
            try:
                return read(names, strict=False, host=host, lazy=lazy)
            except TemplateError as error:
                warn(error)
                return text

        return kept

    return _prepared(value, of_text)


def prepared_code(value: Any) -> Renders:
    """`render_code` of every text in a value."""

    def of_text(text: str) -> Renders:
        def kept(names: Mapping[str, Any], host: Host, warn: Warns) -> Any:
            try:
                return compile_template(text).render_text(names, strict=True, host=host)
            except (TemplateSyntax, TemplateUndefined):
                return text

        return kept

    return _prepared(value, of_text)


def _reader(text: str) -> Callable[..., Any]:
    """What gives the value of a text. One that cannot be parsed is refused again each time."""
    try:
        return compile_template(text).read
    except TemplateSyntax:
        return lambda names, **how: compile_template(text).render(names, **how)


def _prepared(value: Any, of_text: Callable[[str], Renders]) -> Renders:
    if isinstance(value, str):
        return of_text(value) if is_template(value) else lambda names, host, warn: value
    if isinstance(value, Mapping):
        return _of_mapping(value, of_text)
    if isinstance(value, list | tuple):
        parts = [_prepared(inner, of_text) for inner in value]
        return lambda names, host, warn: [render(names, host, warn) for render in parts]
    return lambda names, host, warn: value


def _of_mapping(value: Mapping[Any, Any], of_text: Callable[[str], Renders]) -> Renders:
    fixed = {key: None if _has_more(inner) else inner for key, inner in value.items()}
    parts = [(key, _prepared(inner, of_text)) for key, inner in value.items() if _has_more(inner)]

    def render(names: Mapping[str, Any], host: Host, warn: Warns) -> dict[Any, Any]:
        rendered = fixed.copy()
        for key, part in parts:
            rendered[key] = part(names, host, warn)
        return rendered

    return render


def _has_more(value: Any) -> bool:
    """Whether there is something to render in a value, or to copy: nobody is given what others may change."""
    return is_template(value) if isinstance(value, str) else isinstance(value, Mapping | list | tuple)
