"""What is sealed opens with its key and its context, and with nothing else."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import Corruption, InvalidInput
from noetl.tools.secrets.envelope import Sealed, decrypt_text, encrypt_text, rewrap, seal, unseal
from noetl.tools.secrets.keys import KeyRing, make_key

KEY, OTHER = make_key(b"k" * 32), make_key(b"o" * 32)
RING = KeyRing(keys=(KEY, OTHER), place="here")
CONTEXT = b"what it is"


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_what_goes_in_comes_out(plaintext: bytes, context: bytes) -> None:
    assert unseal(RING, seal(KEY, plaintext, context), context) == plaintext


def test_nothing_is_ever_sealed_the_same_way_twice() -> None:
    sealed = [seal(KEY, b"text", CONTEXT) for _ in range(50)]
    for part in ("wrapped_key", "nonce", "ciphertext"):
        assert len({getattr(one, part) for one in sealed}) == 50
    assert {len(one.nonce) for one in sealed} == {12}


@pytest.mark.parametrize("part", ["wrapped_key", "nonce", "ciphertext"])
def test_every_changed_bit_is_found(part: str) -> None:
    sealed = seal(KEY, b"text", CONTEXT)
    whole: bytes = getattr(sealed, part)
    for index in range(len(whole)):
        changed = whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :]
        with pytest.raises(Corruption, match=f"sealed with key {KEY.id} does not open"):
            unseal(RING, msgspec.structs.replace(sealed, **{part: changed}), CONTEXT)


def test_it_belongs_to_its_context() -> None:
    with pytest.raises(Corruption):
        unseal(RING, seal(KEY, b"text", CONTEXT), b"something else")


def test_a_key_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidInput, match=f"sealed with key {KEY.id}, but here holds {OTHER.id} instead"):
        unseal(KeyRing(keys=(OTHER,), place="here"), seal(KEY, b"text", CONTEXT), CONTEXT)


def test_wrapping_again_leaves_the_data_alone() -> None:
    sealed = seal(KEY, b"text", CONTEXT)
    again = rewrap(RING, OTHER, sealed, CONTEXT)
    assert (again.nonce, again.ciphertext, again.key_id) == (sealed.nonce, sealed.ciphertext, OTHER.id)
    assert unseal(KeyRing(keys=(OTHER,), place="here"), again, CONTEXT) == b"text"


def test_two_data_keys_cannot_be_exchanged() -> None:
    one, two = (seal(KEY, text, CONTEXT) for text in (b"one", b"two"))
    mixed = Sealed(key_id=KEY.id, wrapped_key=two.wrapped_key, nonce=one.nonce, ciphertext=one.ciphertext)
    with pytest.raises(Corruption):
        unseal(RING, mixed, CONTEXT)


@given(st.text().filter(lambda text: text.isprintable()))
def test_a_sealed_text_is_one_word(text: str) -> None:
    word = encrypt_text(KEY, text)
    assert word.isascii()
    assert " " not in word
    assert decrypt_text(RING, word) == text


@pytest.mark.parametrize("word", ["", "text", "noetl-secret:1", "noetl-secret:1:kek-a:b", "noetl-secret:2:kek-a:b:c:d"])
def test_other_texts_are_refused(word: str) -> None:
    with pytest.raises(InvalidInput, match="not a text that encrypt_secret has made"):
        decrypt_text(RING, word)


def test_a_sealed_text_that_was_changed_is_found() -> None:
    word = encrypt_text(KEY, "text")
    for changed in (word[:-6] + "AAAA==", word[:-3] + "!!!"):
        with pytest.raises(Corruption):
            decrypt_text(RING, changed)
