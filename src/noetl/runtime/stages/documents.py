"""The playbooks of stages, as they are carried in their plans."""

from __future__ import annotations

from functools import lru_cache

from noetl.playbook import load
from noetl.playbook.document import Playbook
from noetl.tools.registry import UserKinds

__all__ = ["playbook_of"]

_KEPT = 16


@lru_cache(_KEPT)
def playbook_of(document: str, file: str) -> Playbook:
    """The playbook that a plan brings along. Raises InvalidDocument, which is not kept: kinds may be added.

    The stages of an execution come with the same one, and each of them is asked for it more than once.
    """
    return load(document, file, kinds=UserKinds())
