"""The `noetl` command. Every command is a module of its own, imported when it is called."""

from noetl.cli.app import main

__all__ = ["main"]
