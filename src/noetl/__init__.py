"""NoETL runs data pipelines that can be proven.

A pipeline is a YAML playbook; a small deterministic engine decides what happens next and writes every
decision to an append-only log. From the log alone anyone can rebuild what the system knew at any moment,
and prove by checksum that the rebuilt state is the state that was live.

    import noetl

    run = noetl.run("orders.yaml", day="2026-03-01")
    run.step("load").table()

The rooms, from the foundation up; each imports only rooms to its left:

    errors, settings, observe <- kernel <- playbook <- engine <- ports <- payloads <- tools <- replay <- archive
    <- registry <- subscriptions <- adapters <- data <- system <- runtime <- server <- deploy <- api <- cli

This module is imported by every one of them and by `noetl --help`, so nothing heavy may enter it: what users
write as `noetl.<name>` is loaded when it is first used. Editors and type checkers read `__init__.pyi`.
"""

from __future__ import annotations

__all__ = [
    "ExecutionFailed",
    "ExecutionTimedOut",
    "InvalidDocument",
    "InvalidInput",
    "NoetlError",
    "NotFound",
    "Playbook",
    "PlaybookWarning",
    "Proof",
    "Remote",
    "Run",
    "Session",
    "State",
    "StepResult",
    "Unavailable",
    "__version__",
    "arun",
    "connect",
    "open",
    "run",
    "tool",
]

__version__ = "0.1.0"

# Name -> module, and the name there where it is another one.
_EXPORTS = {
    "ExecutionFailed": "noetl.api.failures",
    "ExecutionTimedOut": "noetl.api.failures",
    "InvalidDocument": "noetl.errors",
    "InvalidInput": "noetl.errors",
    "NoetlError": "noetl.errors",
    "NotFound": "noetl.errors",
    "Playbook": "noetl.playbook.document",
    "PlaybookWarning": "noetl.api.failures",
    "Proof": "noetl.api.state",
    "Remote": "noetl.api.remote",
    "Run": "noetl.api.run",
    "Session": "noetl.api.session",
    "State": "noetl.api.state",
    "StepResult": "noetl.api.run",
    "Unavailable": "noetl.errors",
    "arun": "noetl.api.session",
    "connect": "noetl.api.remote",
    "open": "noetl.api.session:open_session",
    "run": "noetl.api.session",
    "tool": "noetl.tools.registry",
}


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'noetl' has no attribute '{name}'")
    from importlib import import_module

    module, _, there = _EXPORTS[name].partition(":")
    found = getattr(import_module(module), there or name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
