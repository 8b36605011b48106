"""Envelope encryption: each record under a data key of its own, each data key under the key-encryption key.

AES-256-GCM for both, with random nonces of 96 bits. What a record is (its context) is authenticated with it, so
that a sealed value cannot be moved to another name, tenant or version. Changing the key-encryption key means wrapping
the small data keys again; what they protect stays as it is.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import TYPE_CHECKING

import msgspec

from noetl.errors import Corruption, InvalidInput
from noetl.tools.secrets.keys import KEY_BYTES, Key, KeyRing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["Sealed", "decrypt_text", "encrypt_text", "rewrap", "seal", "unseal"]

_NONCE_BYTES = 12
_TEXT_PREFIX = "noetl-secret:1"


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """Sealed bytes: all of it may be seen by anybody."""

    key_id: str
    wrapped_key: bytes
    nonce: bytes
    ciphertext: bytes


def seal(key: Key, plaintext: bytes, context: bytes) -> Sealed:
    """Encrypt under a new data key, which is wrapped with `key`."""
    data_key = secrets.token_bytes(KEY_BYTES)
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return Sealed(
        key_id=key.id,
        wrapped_key=_wrap(key, data_key, context),
        nonce=nonce,
        ciphertext=_cipher(data_key).encrypt(nonce, plaintext, context),
    )


def unseal(ring: KeyRing, sealed: Sealed, context: bytes) -> bytes:
    """The bytes again. Raises InvalidInput without the key, and Corruption if anything was changed."""
    data_key = _unwrap(ring.need(sealed.key_id), sealed.wrapped_key, context)
    return _decrypt(data_key, sealed.nonce, sealed.ciphertext, context, sealed.key_id)


def rewrap(ring: KeyRing, key: Key, sealed: Sealed, context: bytes) -> Sealed:
    """The same ciphertext with its data key under another key."""
    data_key = _unwrap(ring.need(sealed.key_id), sealed.wrapped_key, context)
    return msgspec.structs.replace(sealed, key_id=key.id, wrapped_key=_wrap(key, data_key, context))


def encrypt_text(key: Key, text: str) -> str:
    """A text as one word that may be stored anywhere: the key's id and everything needed to open it."""
    sealed = seal(key, text.encode(), _TEXT_PREFIX.encode())
    parts = (sealed.wrapped_key, sealed.nonce, sealed.ciphertext)
    return ":".join([_TEXT_PREFIX, key.id, *(base64.urlsafe_b64encode(part).decode() for part in parts)])


def decrypt_text(ring: KeyRing, word: str) -> str:
    """The text that `encrypt_text` was given."""
    prefix, _, rest = word.partition(":kek-")
    parts = rest.split(":")
    if prefix != _TEXT_PREFIX or len(parts) != 4:
        raise InvalidInput("this is not a text that encrypt_secret has made")
    try:
        wrapped_key, nonce, ciphertext = (base64.b64decode(part, altchars=b"-_", validate=True) for part in parts[1:])
    except binascii.Error:
        raise Corruption("a text that encrypt_secret has made was changed since") from None
    sealed = Sealed(key_id=f"kek-{parts[0]}", wrapped_key=wrapped_key, nonce=nonce, ciphertext=ciphertext)
    return unseal(ring, sealed, _TEXT_PREFIX.encode()).decode()


def _wrap(key: Key, data_key: bytes, context: bytes) -> bytes:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + _cipher(key.secret).encrypt(nonce, data_key, key.id.encode() + b"\0" + context)


def _unwrap(key: Key, wrapped: bytes, context: bytes) -> bytes:
    nonce, ciphertext = wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:]
    return _decrypt(key.secret, nonce, ciphertext, key.id.encode() + b"\0" + context, key.id)


def _decrypt(secret: bytes, nonce: bytes, ciphertext: bytes, context: bytes, key_id: str) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return _cipher(secret).decrypt(nonce, ciphertext, context)
    except (InvalidTag, ValueError):
        raise Corruption(
            f"a secret sealed with key {key_id} does not open: it was changed after it was stored",
            hint="store it again, or restore the database from a backup",
        ) from None


def _cipher(secret: bytes) -> AESGCM:
    # Imported here: it takes longer than a run without secrets needs for everything else.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(secret)
