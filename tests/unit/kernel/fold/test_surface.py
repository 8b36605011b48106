from __future__ import annotations

import hashlib

from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.kernel import canonical
from noetl.kernel.fold.rows import CommandRow, LoopRow, StageRow
from noetl.kernel.fold.state import State
from noetl.kernel.fold.surface import Key, Surface, bundle_of, checksum_of_rows, state_checksum


def make(key: Key) -> CommandRow:
    return CommandRow(command_id=int(key))


def surface() -> Surface[CommandRow]:
    return Surface("commands", make)


def rows_of(commands: Surface[CommandRow]) -> list[bytes]:
    return [row.encoded() for row in commands.rows.values()]


def test_a_row_is_made_when_it_is_first_edited() -> None:
    commands = surface()
    commands.edit(7).status = "RUNNING"
    assert commands.edit(7).status == "RUNNING"
    assert list(commands.rows) == [7]


def test_the_checksum_is_the_hash_of_name_count_and_sum_of_row_hashes() -> None:
    commands = surface()
    commands.edit(1)
    commands.edit(2).step = "load"
    total = sum(int.from_bytes(hashlib.sha256(row).digest(), "big") for row in rows_of(commands)) % 2**256
    assert commands.checksum() == hashlib.sha256(f"commands\0{2}\0{total:064x}".encode()).hexdigest()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["RUNNING", "FAILED", "PENDING"]), st.booleans())))
def test_the_kept_checksum_equals_one_from_scratch(edits: list[tuple[int, str, bool]]) -> None:
    commands = surface()
    for key, status, asks in edits:
        row = commands.edit(key)
        row.status, row.claims = status, row.claims + 1
        if asks:
            assert commands.checksum() == checksum_of_rows("commands", rows_of(commands))
    assert commands.checksum() == checksum_of_rows("commands", rows_of(commands))


def test_the_order_of_rows_does_not_matter() -> None:
    rows = [make(1).encoded(), make(2).encoded(), make(3).encoded()]
    assert checksum_of_rows("commands", rows) == checksum_of_rows("commands", reversed(rows))


def test_a_row_twice_is_not_a_row_once() -> None:
    row = make(1).encoded()
    assert checksum_of_rows("commands", [row, row]) != checksum_of_rows("commands", [row])


def test_the_same_rows_under_another_name_are_another_surface() -> None:
    assert checksum_of_rows("commands", []) != checksum_of_rows("stages", [])


def test_a_row_put_back_counts_as_if_it_had_been_edited_here() -> None:
    edited, restored = surface(), surface()
    edited.edit(4).step = "load"
    restored.put(4, CommandRow(command_id=4, step="load"))
    assert restored.checksum() == edited.checksum()
    assert restored.changed == set()


def test_a_row_does_not_remember_where_its_text_came_from() -> None:
    """A status read from a file and the same status from the code are the same bytes."""
    read = "".join(["PEND", "ING"])
    assert LoopRow(loop_id="a", status=read).encoded() == LoopRow(loop_id="a").encoded()
    assert StageRow(stage_id=1, status=read).encoded() == b'{"stage_id":1,"status":"PENDING"}'


def test_a_field_that_was_never_set_is_absent() -> None:
    assert make(7).encoded() == b'{"command_id":7,"status":"PENDING"}'


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.floats(allow_nan=False, allow_infinity=False))
def test_a_rows_bytes_are_canonical(text: str, number: float) -> None:
    for row in (CommandRow(command_id=1, step=text), CommandRow(command_id=1, step=text, result={text: number})):
        assert row.encoded() == canonical.encode(row.as_dict())


def test_changed_rows_are_handed_over_once() -> None:
    state = State("execution")
    state.surfaces["commands"].edit(7)
    assert [(name, key) for name, key, _ in state.take_changed()] == [("commands", "7")]
    assert state.take_changed() == []


def test_the_state_checksum_covers_every_surface_and_the_upcasters() -> None:
    state = State("execution")
    bundle = bundle_of(state.surfaces)
    assert list(bundle) == ["execution", "stages", "frames", "commands", "business_objects", "loops"]
    checksums = {state_checksum({**bundle, name: "00"}, "digest") for name in bundle}
    checksums |= {state_checksum(bundle, "digest"), state_checksum(bundle, "other")}
    assert len(checksums) == len(bundle) + 2


def test_filling_a_surface_replaces_what_was_there() -> None:
    filled, edited = surface(), surface()
    filled.edit(1)
    filled.checksum()
    filled.fill({4: CommandRow(command_id=4, step="load")})
    edited.edit(4).step = "load"
    assert filled.checksum() == edited.checksum()
