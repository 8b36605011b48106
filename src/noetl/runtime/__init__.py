"""The shell: it brings time, ids, storage and network to a core that knows none of them.

Adapters are put together in `wiring` and nowhere else; no service builds its own dependency.
"""
