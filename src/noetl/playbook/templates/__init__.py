"""Templates: Jinja over plain data, with native values, in a sandbox that counts its work.

The rules are DSL.md 8. Rendering is pure: names, time and tokens come in from the caller, the result depends on
nothing else, and no template can reach a Python object, another template, or more work than its limits. Jinja
itself is imported when the first template needs it; plain lookups never do.

    errors      what can be wrong
    views       how results look to a template
    host        what the caller lends: now(), token(), limits
    native      a text, compiled once and kept
    rendering   the rule of each kind of field
    prepared    the same for what is rendered many times
    conditions  `when`
    simple      lookups, without Jinja
    program     everything else: environment, rewrite, internals, filters, judges, methods, operators, functions
"""

from __future__ import annotations

from noetl.playbook.templates.conditions import condition, demanded, truth
from noetl.playbook.templates.errors import (
    TemplateError,
    TemplateFailed,
    TemplateLimit,
    TemplateSyntax,
    TemplateUndefined,
)
from noetl.playbook.templates.host import ALONE, Host
from noetl.playbook.templates.limits import Limits
from noetl.playbook.templates.native import Template, check, compile, is_template  # noqa: A004 - that is what it does
from noetl.playbook.templates.prepared import Renders, Warns, prepared_code, prepared_or_keep, prepared_strict
from noetl.playbook.templates.rendering import (
    Kept,
    names,
    paths,
    render,
    render_code,
    render_or_keep,
    render_strict,
    render_task_set,
    render_value,
)
from noetl.playbook.templates.views import EventName, External, ResultView, Views

__all__ = [
    "ALONE",
    "EventName",
    "External",
    "Host",
    "Kept",
    "Limits",
    "Renders",
    "ResultView",
    "Template",
    "TemplateError",
    "TemplateFailed",
    "TemplateLimit",
    "TemplateSyntax",
    "TemplateUndefined",
    "Views",
    "Warns",
    "check",
    "compile",
    "condition",
    "demanded",
    "is_template",
    "names",
    "paths",
    "prepared_code",
    "prepared_or_keep",
    "prepared_strict",
    "render",
    "render_code",
    "render_or_keep",
    "render_strict",
    "render_task_set",
    "render_value",
    "truth",
]
