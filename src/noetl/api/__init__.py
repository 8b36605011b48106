"""NoETL from Python: running playbooks here or on a server, and looking at what came of it.

The names that users write (`noetl.run`, `noetl.connect`, ...) stand in `noetl/__init__.py` and are loaded from here
when first used. `local` works on a home, `remote` on a server; both give the same `Run`, which asks one of them,
through `Place`, for whatever it does not know itself. Callers are synchronous, the runtime is not: `portal` stands
between them, and works just as well where an event loop is already running, as in a notebook.

Nothing here prints, and nothing here decides anything about an execution: that is the runtime's part.
"""
