"""The methods of texts, lists and mappings that a template may call. All are pure, and all are paid for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from jinja2.runtime import LoopContext
from jinja2.sandbox import SandboxedFormatter

from noetl.playbook.templates.errors import TemplateFailed, TemplateLimit
from noetl.playbook.templates.functions import Cycler
from noetl.playbook.templates.operators import reveal
from noetl.playbook.templates.undefined import Lenient
from noetl.playbook.templates.views import MISSING, ResultView

if TYPE_CHECKING:
    from noetl.playbook.templates.environment import RenderContext

__all__ = ["find", "join", "padded", "replace"]

Method = Callable[..., Any]

_MAX_FIELD = 10_000


def find(target: Any, name: str) -> Method | None:
    """The method of this name, called as `method(context, target, ...)`."""
    if isinstance(target, str):
        return _TEXT.get(name)
    if isinstance(target, ResultView | Mapping):
        return _MAPPING.get(name)
    if isinstance(target, list | tuple):
        return _LIST.get(name)
    if isinstance(target, Cycler):
        return _CYCLER.get(name)
    return _LOOP.get(name) if type(target) is LoopContext else None


def padded(context: RenderContext, width: int) -> int:
    """A width that somebody asked for, once there is room for it."""
    context.budget.take_text(width)
    return width


def replace(context: RenderContext, text: str, old: str, new: str, count: int = -1) -> str:
    context.budget.take_text(len(text))
    times = text.count(old)
    if count >= 0:
        times = min(times, count)
    context.budget.take_text(len(text) + times * max(0, len(new) - len(old)))
    return text.replace(old, new, count)


def join(context: RenderContext, separator: str, pieces: Iterable[str]) -> str:
    pieces = list(pieces)
    context.budget.take_items(len(pieces))
    context.budget.take_text(sum(map(len, pieces)) + len(separator) * len(pieces))
    return separator.join(pieces)


def _pure(name: str) -> Method:
    """A method whose result is at most as long as the text, or a list of its parts."""
    method = getattr(str, name)

    def call(context: RenderContext, text: str, *args: Any) -> Any:
        context.budget.take_text(len(text))
        result = method(text, *args)
        if isinstance(result, list):
            context.budget.take_items(len(result))
        return list(result) if isinstance(result, tuple) else result

    return call


def _padding(name: str) -> Method:
    method = getattr(str, name)

    def call(context: RenderContext, text: str, width: int, *fill: str) -> Any:
        context.budget.take_text(len(text))
        return method(text, padded(context, width), *fill)

    return call


def _join(context: RenderContext, separator: str, pieces: Any) -> str:
    return join(context, separator, reveal(pieces))


class _Formatter(SandboxedFormatter):
    """`str.format` over plain data: fields are read like any other, and widths have a limit."""

    def __init__(self, context: RenderContext) -> None:
        super().__init__(context.environment)
        self._context = context

    def format_field(self, value: Any, format_spec: str) -> str:
        if any(int(number[:9]) > _MAX_FIELD for number in _numbers(format_spec)):
            raise TemplateLimit("a width or precision in a format is too large")
        if not isinstance(value, int | float | str) or not format_spec:
            value = self._context.print(value)
        done = format(value, format_spec)
        self._context.budget.take_text(len(done))
        return done

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return value if conversion is None else super().convert_field(self._context.print(value), conversion)


def _numbers(spec: str) -> list[str]:
    return "".join(letter if letter.isdecimal() else " " for letter in spec).split()


def _format(context: RenderContext, text: str, *args: Any, **kwargs: Any) -> str:
    context.budget.take_text(len(text) * 16)  # reading a format is slow
    done = _Formatter(context).vformat(text, args, kwargs)
    context.budget.take_text(len(done))
    return done


def _get(context: RenderContext, target: Any, key: Any, default: Any = None) -> Any:
    context.budget.spend(1)
    if isinstance(key, Lenient):
        key.filtered()
        return default
    found = target.read(key) if isinstance(target, ResultView) and isinstance(key, str) else _entry(target, key)
    return default if found is MISSING else found


def _entry(target: Any, key: Any) -> Any:
    mapping = _mapping(target)
    try:
        return mapping.get(key, MISSING)
    except TypeError:
        raise TemplateFailed(f"a {type(key).__name__} is no key") from None


def _mapping(target: Any) -> Mapping[Any, Any]:
    value = target.plain() if isinstance(target, ResultView) else target
    if not isinstance(value, Mapping):
        raise TemplateFailed(f"a {type(value).__name__} has no keys")
    return value


def _listing(read: Callable[[Mapping[Any, Any]], Iterable[Any]]) -> Method:
    def call(context: RenderContext, target: Any) -> list[Any]:
        mapping = _mapping(target)
        context.budget.take_items(len(mapping))
        return list(read(mapping))

    return call


def _search(name: str) -> Method:
    method = getattr(list, name)

    def call(context: RenderContext, target: Any, value: Any, *bounds: int) -> Any:
        context.budget.take_items(len(target))
        if not isinstance(value, str | int | float):
            context.budget.walk(target)
        return method(list(target), reveal(value), *bounds)

    return call


def _changed(context: RenderContext, loop: Any, *values: Any) -> Any:
    context.budget.walk(values, 2)
    return loop.changed(*values)


def _comparing(name: str) -> Method:
    """A method that in the worst case compares every character with every other."""
    pure = _pure(name)

    def call(context: RenderContext, text: str, *args: Any) -> Any:
        if args and isinstance(args[0], str):
            context.budget.take_product(text, args[0])
        return pure(context, text, *args)

    return call


_COMPARING = ("lstrip", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "strip")
_SHRINKING = """
    capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit islower isnumeric isspace
    istitle isupper lower partition removeprefix removesuffix split splitlines startswith swapcase title upper
""".split()  # noqa: SIM905 - read as a list of words

_TEXT: dict[str, Method] = {
    **{name: _pure(name) for name in _SHRINKING},
    **{name: _comparing(name) for name in _COMPARING},
    **{name: _padding(name) for name in ("center", "ljust", "rjust", "zfill")},
    "format": _format,
    "join": _join,
    "replace": replace,
}
_LIST: dict[str, Method] = {name: _search(name) for name in ("count", "index")}
_MAPPING: dict[str, Method] = {
    "get": _get,
    "items": _listing(lambda mapping: mapping.items()),
    "keys": _listing(lambda mapping: mapping.keys()),
    "values": _listing(lambda mapping: mapping.values()),
}
_CYCLER: dict[str, Method] = {
    "next": lambda _, cycler: cycler.step(),
    "reset": lambda _, cycler: cycler.reset(),
}
_LOOP: dict[str, Method] = {
    "changed": _changed,
    "cycle": lambda _, loop, *values: loop.cycle(*values),
}
