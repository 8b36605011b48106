"""The token of a stage: whoever shows it speaks for slots of that stage, and of no other, while it is kept here."""

from __future__ import annotations

import hmac
import secrets

__all__ = ["StageToken"]

_PREFIX = "nst"


class StageToken:
    """A token that is drawn anew by every keeper. It opens nothing but the frames of one stage."""

    def __init__(self, stage_id: int) -> None:
        self.text = f"{_PREFIX}_{stage_id}_{secrets.token_hex(32)}"

    def matches(self, shown: str) -> bool:
        """Whether this is the token; how long that takes says nothing about it."""
        return hmac.compare_digest(self.text.encode(), shown.encode())

    @staticmethod
    def stage_of(shown: str) -> int | None:
        """The stage that a token claims to be for; None for what is no token of a stage."""
        prefix, _, rest = shown.partition("_")
        stage, _, secret = rest.partition("_")
        if prefix != _PREFIX or not secret or not stage.isdecimal() or not stage.isascii():
            return None
        return int(stage)
