"""Ed25519 signatures: who made a bundle, for anybody who has the public key."""

from __future__ import annotations

import re

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from noetl.errors import InvalidInput
from noetl.tools.secrets.keys import Key, Keys

__all__ = ["ALGORITHM", "Signer", "holds", "load_signer", "read_public_key"]

ALGORITHM = "ed25519"
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Signer:
    """Signs with a key of 32 bytes. The same bytes always get the same signature."""

    def __init__(self, key: Key) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(key.secret)
        self.public_key = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
        """What others need to check a signature, in hex; it may be shown to anybody."""

    def __repr__(self) -> str:
        return f"Signer({self.public_key})"

    def sign(self, data: bytes) -> str:
        """The signature of these bytes, in hex."""
        return self._key.sign(data).hex()


async def load_signer(keys: Keys) -> Signer:
    """Who signs with the newest of some keys; the first one is made if there is none."""
    newest = (await keys.create()).newest
    assert newest is not None, "a ring that was created has a key"
    return Signer(newest)


def holds(data: bytes, signature: str, public_key: str) -> bool:
    """Whether the owner of a public key has signed these bytes. What is not even a signature does not hold."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(bytes.fromhex(signature), data)
    except (ValueError, InvalidSignature):
        return False
    return True


def read_public_key(text: str) -> str:
    """A public key as a person gives it. Raises InvalidInput."""
    key = text.strip().lower()
    if not _HEX.fullmatch(key):
        raise InvalidInput(
            "a public key is 32 bytes in hex, 64 characters", hint="noetl archive key shows that of a home"
        )
    return key
