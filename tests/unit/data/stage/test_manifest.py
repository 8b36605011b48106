"""Slices follow from what was pinned alone, and have every row once."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.data.stage.manifest import Manifest, Source, pieces_of, read_manifest, slices_of, write_manifest
from noetl.errors import IntegrityMismatch
from tests.stagework import reference


def source(rows: int, groups: tuple[int, ...] = ()) -> Source:
    return Source(form="stored", rows=rows, ref=reference("rows"), groups=groups)


@given(st.lists(st.integers(1, 50), max_size=6), st.integers(1, 30))
def test_every_row_is_in_one_slice_and_none_has_too_many(sizes: list[int], most: int) -> None:
    manifest = Manifest(sources=tuple(source(rows) for rows in sizes), rows_per_slice=most)
    pieces = list(pieces_of(manifest))
    rows = [
        (one.source, row) for piece in pieces for one in piece.ranges for row in range(one.first, one.first + one.rows)
    ]
    assert rows == [(number, row) for number, size in enumerate(sizes) for row in range(size)]
    assert all(piece.rows <= most for piece in pieces)


@given(st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=6), max_size=3), st.integers(1, 30), st.booleans())
def test_groups_are_cut_only_where_nobody_needs_them_whole(sizes: list[list[int]], most: int, is_reduce: bool) -> None:
    sources = tuple(source(sum(groups), tuple(groups)) for groups in sizes)
    manifest = Manifest(sources=sources, rows_per_slice=most, by=("k",), is_reduce=is_reduce)
    pieces = list(pieces_of(manifest))
    assert sum(piece.rows for piece in pieces) == sum(map(sum, sizes))
    if is_reduce:
        assert [size for piece in pieces for size in piece.groups] == [size for groups in sizes for size in groups]
        assert all(sum(piece.groups) == piece.rows for piece in pieces)
    else:
        assert all(piece.rows <= most for piece in pieces)


def test_without_a_key_a_reduce_has_one_slice_of_all() -> None:
    manifest = Manifest(sources=(source(5), source(7)), rows_per_slice=1, is_reduce=True)
    (piece,) = pieces_of(manifest)
    assert (piece.rows, piece.groups) == (12, (12,))


def test_a_slice_says_where_it_is_and_counts_what_a_body_runs_for() -> None:
    manifest = Manifest(sources=(source(5),), rows_per_slice=3)
    ref = reference("pinned")
    assert [(one.rows, one.part["number"], one.part["first"]) for one in slices_of(manifest, ref)] == [
        (3, 0, 0),
        (2, 1, 3),
    ]
    groups = Manifest(sources=(source(5, (2, 3)),), rows_per_slice=9, by=("k",), is_reduce=True)
    assert [one.rows for one in slices_of(groups, ref)] == [2]


def test_a_slice_of_one_frame_has_it_as_its_parent() -> None:
    made = [msgspec.structs.replace(source(3), frame_id=number) for number in (71, 72)]
    found = slices_of(Manifest(sources=tuple(made), rows_per_slice=2), reference("pinned"))
    assert [(one.parent_frame_id, one.part.get("parent_frames")) for one in found] == [
        (71, None), (None, [71, 72]), (72, None)
    ]  # fmt: skip


def test_a_manifest_is_read_as_it_was_written() -> None:
    manifest = Manifest(sources=(source(5, (2, 3)),), rows_per_slice=3, by=("k",), is_reduce=True, skipped=("why",))
    assert read_manifest(write_manifest(manifest)) == manifest
    with pytest.raises(IntegrityMismatch, match="cannot be read"):
        read_manifest(b"[]")
