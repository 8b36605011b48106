from __future__ import annotations

import hashlib

import pytest

from noetl.kernel.merkle import EMPTY_ROOT, Merkle

LEAVES = [hashlib.sha256(str(index).encode()).hexdigest() for index in range(300)]


def naive_root(leaves: list[str]) -> bytes:
    """MTH of RFC 6962, section 2.1, as it is written there."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + bytes.fromhex(leaves[0])).digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return hashlib.sha256(b"\x01" + naive_root(leaves[:split]) + naive_root(leaves[split:])).digest()


def tree_of(leaves: list[str]) -> Merkle:
    tree = Merkle()
    for leaf in leaves:
        tree.add(leaf)
    return tree


def test_an_empty_tree_has_the_hash_of_nothing() -> None:
    assert Merkle().root() == EMPTY_ROOT == hashlib.sha256(b"").hexdigest()


def test_the_root_is_that_of_rfc_6962_for_every_size_up_to_300() -> None:
    tree = Merkle()
    for size, leaf in enumerate(LEAVES):
        assert tree.root() == naive_root(LEAVES[:size]).hex()
        tree.add(leaf)
    assert tree.root() == naive_root(LEAVES).hex()


def test_a_tree_goes_on_from_its_peaks() -> None:
    whole = tree_of(LEAVES[:101]).root()
    for size in range(101):
        begun = tree_of(LEAVES[:size])
        resumed = Merkle(begun.count, begun.peaks)
        for leaf in LEAVES[size:101]:
            resumed.add(leaf)
        assert resumed.root() == whole


def test_a_tree_keeps_one_peak_for_each_bit_of_its_size() -> None:
    assert [len(tree_of(LEAVES[:size]).peaks) for size in (0, 1, 7, 8, 255, 256)] == [0, 1, 3, 1, 8, 1]


def test_asking_for_the_root_changes_nothing() -> None:
    tree = tree_of(LEAVES[:5])
    assert tree.root() == tree.root()
    tree.add(LEAVES[5])
    assert tree.root() == naive_root(LEAVES[:6]).hex()


def test_swapping_two_leaves_changes_the_root() -> None:
    assert tree_of([LEAVES[1], LEAVES[0]]).root() != tree_of([LEAVES[0], LEAVES[1]]).root()


@pytest.mark.parametrize(("count", "peaks"), [(1, ()), (0, (LEAVES[0],)), (3, (LEAVES[0],))])
def test_peaks_that_do_not_fit_the_count_are_refused(count: int, peaks: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"{count} leaves have"):
        Merkle(count, peaks)
