"""JSON Schema (2020-12) of the documents, so that an editor completes and checks them.

A schema cannot say everything the validator knows (names that must exist, keys that exclude each other);
what it says, it says with the validator's own lists. It describes today's form: older spellings still run,
but an editor should not offer them.
"""

from __future__ import annotations

from collections.abc import Collection

from noetl.playbook.schema.parts import Schema
from noetl.playbook.schema.workflow import playbook_schema

__all__ = ["Schema", "playbook", "subscription"]


def playbook(kinds: Collection[str] = ()) -> Schema:
    """The schema of `kind: Playbook`. `kinds` are tool kinds known beside the built-in ones."""
    return playbook_schema(kinds)


def subscription() -> Schema:
    """The schema of `kind: Subscription`."""
    from noetl.playbook.schema.messages import subscription_schema

    return subscription_schema()
