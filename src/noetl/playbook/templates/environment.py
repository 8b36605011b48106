"""The sandbox: Jinja with every way out of plain data closed.

Jinja's own sandbox refuses what is known to be dangerous. Here nothing exists unless it is listed: attributes are
keys, methods and functions come from tables, and a value that is not callable in the table cannot be called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jinja2.compiler import CodeGenerator
from jinja2.nodes import EvalContext
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing, pass_context

from noetl.kernel.lazy import LAZY
from noetl.playbook.templates import methods
from noetl.playbook.templates.errors import TemplateFailed, TemplateLimit
from noetl.playbook.templates.filters import FILTERS
from noetl.playbook.templates.functions import FUNCTIONS, Function, Joiner, own_attribute
from noetl.playbook.templates.host import Host
from noetl.playbook.templates.internals import INTERNALS, each
from noetl.playbook.templates.judges import TESTS
from noetl.playbook.templates.limits import MAX_DEPTH, Budget
from noetl.playbook.templates.lookup import attribute, item
from noetl.playbook.templates.operators import OPERATORS
from noetl.playbook.templates.plain import decoded, hand_over
from noetl.playbook.templates.text import text_of
from noetl.playbook.templates.undefined import Lenient, Strict
from noetl.playbook.templates.views import MISSING, VIEWS

__all__ = ["LENIENT", "NATIVE", "STRICT", "RenderContext", "Sandbox"]


_SHORT = frozenset({int, float, bool, type(None)})
_CONTAINERS = (list, dict, tuple)
_INDIRECT = 6


class RenderContext:
    """One rendering: the names, what the host lends, and what is left of the limits.

    Stands where Jinja expects its own context, with the part of it that generated code uses, and without the
    copies that it makes.
    """

    __slots__ = ("budget", "environment", "eval_ctx", "exported_vars", "host", "names", "vars", "weight")

    def __init__(self, environment: Sandbox, names: Mapping[str, Any], host: Host, weight: int) -> None:
        self.environment = environment
        self.names = names
        self.host = host
        self.budget = Budget(host.limits)
        self.eval_ctx = environment.evaluation
        self.weight = weight
        self.vars: dict[str, Any] = {}
        self.exported_vars: set[str] = set()

    def resolve_or_missing(self, key: str) -> Any:
        if key in self.vars:
            return self.vars[key]
        try:
            return self.names[key]
        except KeyError:
            return FUNCTIONS.get(key, missing)

    def print(self, value: Any) -> str:
        """The text of any value, an undefined one included."""
        kind = type(value)
        if kind is str:
            return str(value)
        if kind in _SHORT:
            return text_of(value)
        if isinstance(value, Lenient):
            return str(value)
        return text_of(self.clean(value))

    def clean(self, value: Any, *, lazy: bool = False) -> Any:
        """Plain data, once it is known that there is not too much of it; or a lazy value as it is."""
        if type(value) in _SHORT:
            return value
        if isinstance(value, VIEWS):
            value = value.plain()
        if isinstance(value, LAZY):
            return value if lazy else self.decode(value)
        if not isinstance(value, _CONTAINERS):
            return _cleaned(value, 0)
        if self.budget.walk(value):
            return value
        value = _cleaned(value, MAX_DEPTH)
        self.budget.walk(value)
        return value

    def decode(self, value: Any) -> Any:
        """The JSON of a lazy value, which is paid for before it is made."""
        self.budget.walk(value)
        return decoded(value)


def _cleaned(value: Any, depth: int) -> Any:
    if isinstance(value, _CONTAINERS):
        if depth <= 0:
            raise TemplateLimit(f"lists and mappings are nested more than {MAX_DEPTH} deep")
        if not isinstance(value, dict):
            return [_cleaned(inner, depth - 1) for inner in value]
        return {text_of(key): _cleaned(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, Lenient):
        value.filtered()
        return None
    return hand_over(value)


@pass_context
def _print(context: RenderContext, value: Any) -> str:
    printed = context.print(value)
    context.budget.put_out(len(printed))
    return printed


class Sandbox(ImmutableSandboxedEnvironment):
    """The rules of the language for one kind of undefined."""

    intercepted_binops = frozenset(OPERATORS)

    def __init__(self, undefined: type[Lenient]) -> None:
        super().__init__(
            undefined=undefined, finalize=_print, autoescape=False, optimized=False, keep_trailing_newline=True
        )
        self.filters = {**FILTERS, **INTERNALS}
        self.tests = dict(TESTS)
        self.globals = {}
        self.evaluation = EvalContext(self)

    def getattr(self, obj: Any, attribute_: str) -> Any:
        found = attribute(obj, attribute_)
        if found is MISSING:
            found = own_attribute(obj, attribute_)
        return found if found is not MISSING else self.undefined(None, obj, attribute_)

    def getitem(self, obj: Any, argument: Any) -> Any:
        found = item(obj, argument)
        return found if found is not MISSING else self.undefined(None, obj, argument)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return False

    def is_safe_callable(self, obj: Any) -> bool:
        return False

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "+" and type(left) in _SHORT and type(right) in _SHORT:
            return left + right
        return OPERATORS[operator](context.budget, left, right)

    def call_filter(
        self, name: Any, value: Any, args: Any = None, kwargs: Any = None, context: Any = None, eval_ctx: Any = None
    ) -> Any:
        """A filter that is named in a string, as `map` does."""
        if not isinstance(name, str) or name not in FILTERS:
            raise TemplateFailed("there is no such filter")
        context.budget.spend(_INDIRECT)
        return FILTERS[name](context, value, *args, **kwargs)

    def call_test(
        self, name: Any, value: Any, args: Any = None, kwargs: Any = None, context: Any = None, eval_ctx: Any = None
    ) -> Any:
        """A test that is named in a string, as `select` does."""
        if not isinstance(name, str) or name not in TESTS:
            raise TemplateFailed("there is no such test")
        context.budget.spend(_INDIRECT)
        return TESTS[name](context, value, *args, **kwargs)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as Jinja calls it
        kwargs.pop("_loop_vars", None)
        kwargs.pop("_block_vars", None)
        return _call(__context, __obj, args, kwargs)


def _call(context: RenderContext, callee: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    context.budget.take_arguments(args, kwargs)
    if isinstance(callee, Function):
        return callee.call(context, *args, **kwargs)
    if isinstance(callee, Joiner):
        return callee.step()
    if isinstance(callee, Lenient):
        return _call_method(context, callee, args, kwargs)
    if type(callee) is Macro:
        return _nested(context, callee, args, kwargs)
    if type(callee) is LoopContext:
        return _nested(context, callee, (each(context, args[0], context.weight), *args[1:]), kwargs)
    raise TemplateFailed(f"a {type(callee).__name__} is not a function")


def _call_method(context: RenderContext, callee: Lenient, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target = callee.target()
    method = methods.find(*target) if target else None
    if method is None or target is None:
        callee.refuse()
    return method(context, target[0], *args, **kwargs)


def _nested(context: RenderContext, callee: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    budget = context.budget
    if budget.depth >= budget.limits.depth:
        raise TemplateLimit(f"macros and loops call each other more than {budget.limits.depth} deep")
    budget.depth += 1
    try:
        return callee(*args, **kwargs)
    finally:
        budget.depth -= 1


class _NativeGenerator(CodeGenerator):
    """Code that yields the value of an expression and not its text."""

    def _output_child_pre(self, *_: Any) -> None:
        self.write("(")

    def _output_child_post(self, *_: Any) -> None:
        self.write(")")


class _NativeSandbox(Sandbox):
    code_generator_class = _NativeGenerator


LENIENT = Sandbox(Lenient)
STRICT = Sandbox(Strict)
NATIVE = _NativeSandbox(Lenient)
