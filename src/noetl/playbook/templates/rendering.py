"""Fields of a playbook, rendered by the rule that each kind of field has (DSL.md 8, rules 6 and 7)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from noetl.playbook.templates.errors import TemplateError, TemplateSyntax, TemplateUndefined
from noetl.playbook.templates.host import ALONE, Host
from noetl.playbook.templates.names import find_paths
from noetl.playbook.templates.native import compile as compile_template
from noetl.playbook.templates.native import is_template
from noetl.playbook.templates.plain import decoded

__all__ = [
    "Kept",
    "names",
    "paths",
    "render",
    "render_code",
    "render_or_keep",
    "render_strict",
    "render_task_set",
    "render_value",
]

_OUTPUT = re.compile(r"\s*\{\{-?\s*output\s*-?\}\}\s*")


class Kept(NamedTuple):
    """A value in which the templates that failed are left as they were, and why they failed."""

    value: Any
    problems: tuple[TemplateError, ...]


def render(text: str, names: Mapping[str, Any], *, host: Host = ALONE) -> Any:
    """One template. Raises a TemplateError."""
    return compile_template(text).render(names, host=host)


def render_value(value: Any, names: Mapping[str, Any], *, host: Host = ALONE) -> Any:
    """A value with all templates in its mappings and lists rendered. Keys are kept. Raises a TemplateError."""
    if type(value) is str:
        return compile_template(value).render(names, host=host) if is_template(value) else value
    return _each_text(value, lambda text: compile_template(text).render(names, host=host))


def render_strict(value: Any, names: Mapping[str, Any], *, host: Host = ALONE) -> Any:
    """A strict field: SQL, claim, URL, path, auth.

    Raises TemplateUndefined when an undefined value is printed, iterated or filtered, and TemplateSyntax for text
    that cannot be parsed: unrendered text must never reach a database or a URL.
    """
    if type(value) is str:
        return compile_template(value).render(names, strict=True, host=host) if is_template(value) else value
    return _each_text(value, lambda text: compile_template(text).render(names, strict=True, host=host))


def render_code(text: str, names: Mapping[str, Any], *, host: Host = ALONE) -> str:
    """Code and shell commands: strict text, or the original where braces were not meant as a template."""
    try:
        return compile_template(text).render_text(names, strict=True, host=host)
    except (TemplateSyntax, TemplateUndefined):
        return text


def render_or_keep(
    value: Any, names: Mapping[str, Any], *, strict: bool = False, host: Host = ALONE, lazy: bool = False
) -> Kept:
    """A lenient field: a template that raises keeps its raw text, with a problem to warn about.

    With `strict`, so does one that prints an undefined name: the rule for defaults of the workload. With `lazy`,
    what is a table stays one.
    """
    problems = list[TemplateError]()

    def attempt(text: str) -> Any:
        try:
            return compile_template(text).render(names, strict=strict, host=host, lazy=lazy)
        except TemplateError as error:
            problems.append(error)
            return text

    rendered = _each_text(value, attempt)
    return Kept(rendered, tuple(problems))


def render_task_set(
    value: Any, names: Mapping[str, Any], second_face: Any, *, host: Host = ALONE, lazy: bool = False
) -> Any:
    """A value of a task-level `set`.

    Exactly `{{ output }}` gives the second face: the raw result or, after a continued failure, the error view. With
    `lazy`, what is a table stays one.
    """
    if isinstance(value, str) and _OUTPUT.fullmatch(value):
        return second_face if lazy else decoded(second_face)
    return _each_text(value, lambda text: compile_template(text).render(names, host=host, lazy=lazy))


def names(text: str) -> frozenset[str]:
    """The root names that a template uses. May hold more than a rendering looks up, never less."""
    return frozenset(path[0] for path in paths(text))


def paths(text: str) -> frozenset[tuple[str, ...]]:
    """What a template reads from its names: keys from the root, as far as they are written out."""
    return find_paths(text) if is_template(text) else frozenset()


def _each_text(value: Any, render_one: Callable[[str], Any]) -> Any:
    kind = type(value)
    if kind is str or isinstance(value, str):
        return render_one(value) if is_template(value) else value
    if kind is dict or isinstance(value, Mapping):
        return {key: _each_text(inner, render_one) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_each_text(inner, render_one) for inner in value]
    return value
