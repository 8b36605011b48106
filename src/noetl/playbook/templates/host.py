"""What the caller lends to a template: functions that need the world outside, and the limits.

This room reads no clock and holds no key, so `now()`, `token()` and `encrypt_secret` come in from the shell.
Whoever renders where one of them has no business (the engine has no tokens) leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from noetl.playbook.templates.errors import TemplateFailed
from noetl.playbook.templates.limits import USUAL, Limits

__all__ = ["ALONE", "Host"]


@dataclass(frozen=True, slots=True)
class Host:
    """Functions and limits of one caller.

    `now` is ISO 8601 text in UTC, or a function that gives it. Errors that these functions raise reach the caller
    of the rendering unchanged if they are a NoetlError: a store that does not answer is no fault of the template.
    """

    now: str | Callable[[], str] | None = None
    token: Callable[[str], str] | None = None
    encrypt_secret: Callable[[str], str] | None = None
    limits: Limits = USUAL

    def time(self) -> str:
        if self.now is None:
            raise _absent("now()")
        return self.now if isinstance(self.now, str) else self.now()

    def bearer(self, credential: str) -> str:
        if self.token is None:
            raise _absent("token()")
        return self.token(credential)

    def encrypt(self, text: str) -> str:
        if self.encrypt_secret is None:
            raise _absent("encrypt_secret")
        return self.encrypt_secret(text)


ALONE = Host()


def _absent(name: str) -> TemplateFailed:
    return TemplateFailed(f"{name} is not available here")
