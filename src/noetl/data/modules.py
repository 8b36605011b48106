"""The user's modules beside a playbook, as the code of one task sees them.

`main` runs in a process that serves many playbooks, and Python has one table of modules for all of them. So modules of
a playbook's directory are kept out of that table: each task has its own, loaded when it is imported, as it then is. Two
directories may both have a `helpers.py`, and neither sees the other's.
"""

from __future__ import annotations

import builtins
import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec, module_from_spec, resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["UserModules", "names_used"]

_WORD = re.compile(r"[^\W\d]\w*")


class UserModules:
    """What can be imported from some directories, the first before the others."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [str(root.absolute()) for root in roots]
        self._loaded: dict[str, ModuleType] = {}
        self.builtins: dict[str, Any] = {**vars(builtins), "__import__": self._import}
        """For the namespace of code that is to import from here."""

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,  # noqa: A002 - as Python calls it
        locals: Mapping[str, Any] | None = None,  # noqa: A002
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        whole = resolve_name("." * level + name, str((globals or {}).get("__package__") or "")) if level else name
        top = whole.partition(".")[0]
        if top not in self._loaded and self._spec_of(top) is None:
            return builtins.__import__(name, globals, locals, fromlist, level)
        module = self._load(whole)
        if not fromlist:
            return self._loaded[top]
        if hasattr(module, "__path__"):
            wanted = getattr(module, "__all__", ()) if "*" in fromlist else fromlist
            for inner in wanted:
                if not hasattr(module, inner) and PathFinder.find_spec(f"{whole}.{inner}", module.__path__) is not None:
                    self._load(f"{whole}.{inner}")
        return module

    def _load(self, name: str) -> ModuleType:
        if name in self._loaded:
            return self._loaded[name]
        package, _, last = name.rpartition(".")
        parent = self._load(package) if package else None
        if name in self._loaded:  # the package itself has imported it
            return self._loaded[name]
        spec = self._spec_of(name) if parent is None else PathFinder.find_spec(name, getattr(parent, "__path__", []))
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        module = self._made(spec)
        if parent is not None:
            setattr(parent, last, module)
        return module

    def _made(self, spec: ModuleSpec) -> ModuleType:
        plain = module_from_spec(spec)
        if not isinstance(spec.loader, SourceFileLoader):  # a library of its own, or a directory without code
            self._loaded[spec.name] = plain
            if spec.loader is not None:
                spec.loader.exec_module(plain)
            return plain
        module = _UserModule(spec.name)
        vars(module).update(vars(plain), __builtins__=self.builtins)
        self._loaded[spec.name] = module
        try:
            # Compiled anew: nothing is left beside the user's files, and what was edited a moment ago is seen.
            code = compile(spec.loader.get_data(spec.loader.path), spec.loader.path, "exec", dont_inherit=True)
            exec(code, vars(module))  # noqa: S102 - the user's code is what this task is
        except BaseException:
            del self._loaded[spec.name]
            raise
        return module

    def _spec_of(self, top: str) -> ModuleSpec | None:
        """A module or package of theirs. What Python itself has goes first, and a directory without code last."""
        if top in sys.stdlib_module_names or top in sys.builtin_module_names:
            return None
        spec = PathFinder.find_spec(top, self._roots)
        if spec is not None and spec.origin is None and (top in sys.modules or find_spec(top) is not None):
            return None
        return spec


class _UserModule(ModuleType):
    """One that functions on an executor import there: it is not carried along with them."""

    def __reduce__(self) -> Any:
        return importlib.import_module, (self.__name__,)


def names_used(code: str, root: Path) -> frozenset[str]:
    """The modules and packages in a directory whose names stand in code, and those whose names stand in these.

    A name that stands there for something else is carried for nothing; one that does not cannot be imported. Most code
    has none, and then nothing needs to be read or carried for it.
    """
    there = _importable(root)
    found: set[str] = set()
    texts = [code]
    while texts:
        for name in set(_WORD.findall(texts.pop())) & there.keys() - found:
            found.add(name)
            for path in there[name]:
                files = path.rglob("*.py") if path.is_dir() else (path,)
                texts += [file.read_text(encoding="utf-8", errors="replace") for file in files]
    return frozenset(found)


def _importable(root: Path) -> dict[str, list[Path]]:
    there: dict[str, list[Path]] = {}
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        is_module = path.suffix == ".py" or (path.is_dir() and next(path.glob("*.py"), None) is not None)
        if is_module and path.stem not in sys.stdlib_module_names:
            there.setdefault(path.stem, []).append(path)
    return there
