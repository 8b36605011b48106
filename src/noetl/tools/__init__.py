"""Tools: what a step can do, one file per kind.

A tool is told what to do in plain data and answers in plain data. It knows nothing of events, tokens or
ledgers; whether its answer is good enough is for the rules of the task to say. Heavy libraries are
imported by the tool that needs them, when it is first called.
"""

from noetl.tools.base import Call, Outcome, Tool, failed, ok
from noetl.tools.registry import Registry, tool

__all__ = ["Call", "Outcome", "Registry", "Tool", "failed", "ok", "tool"]
