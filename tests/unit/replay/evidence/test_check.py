"""Evidence proves itself, wherever it lies; whatever was changed in it is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noetl.errors import NotFound
from noetl.replay.evidence import check_evidence
from noetl.replay.evidence.artefacts import FILES, INDEX
from tests.unit.replay.evidence.given import change, change_text, evidence, index_anew

Edit = Callable[[dict[str, Any]], object]
ALL = [*FILES.values(), INDEX]


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    return await evidence(tmp_path)


def named(directory: Path) -> list[str]:
    checked = check_evidence(directory)
    assert checked.ok == (not checked.problems)
    return [str(problem) for problem in checked.problems]


# --- What holds -------------------------------------------------------------------------------------------


async def test_evidence_that_nobody_touched_holds(directory: Path) -> None:
    checked = check_evidence(directory)
    assert (checked.ok, checked.problems) == (True, [])
    assert (checked.events, checked.rows, checked.payloads) == (6, 2, 1)
    assert (checked.chain, checked.keyed, checked.parity) == ("ok", True, True)


async def test_a_copy_elsewhere_gives_the_same_answer_to_the_byte(directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "with another name"
    shutil.copytree(directory, copy)
    assert msgspec.json.encode(check_evidence(copy)) == msgspec.json.encode(check_evidence(directory))
    change(copy, "parity", lambda parity: parity.update(match=False))
    shutil.copytree(copy, tmp_path / "third")
    assert msgspec.json.encode(check_evidence(copy)) == msgspec.json.encode(check_evidence(tmp_path / "third"))


def test_a_directory_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no directory"):
        check_evidence(tmp_path / "none")


def test_a_directory_with_nothing_in_it_misses_everything(tmp_path: Path) -> None:
    assert named(tmp_path) == [f"{name}, (file): is missing" for name in sorted(ALL)]


# --- One character ----------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_a_changed_a_missing_and_an_added_byte_fail_anywhere(data: st.DataObject, directory: Path) -> None:
    name = data.draw(st.sampled_from(ALL))
    file = directory / name
    sound = file.read_bytes()
    position = data.draw(st.integers(0, len(sound) - 1))
    other = bytes([data.draw(st.integers(0, 255))])
    changed = data.draw(
        st.sampled_from(
            [
                sound[:position] + other + sound[position + 1 :],
                sound[:position] + sound[position + 1 :],
                sound[:position] + other + sound[position:],
                sound[:position],
                sound + other,
            ]
        )
    )
    file.write_bytes(changed)
    try:
        assert check_evidence(directory).ok == (changed == sound)
    finally:
        file.write_bytes(sound)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_a_changed_digit_fails_also_if_the_index_was_made_anew(data: st.DataObject, directory: Path) -> None:
    """What an index would vouch for must hold by itself: each number and each digest follows from something else."""
    name = data.draw(st.sampled_from([name for role, name in FILES.items() if role != "manifest"]))
    file, index = directory / name, directory / INDEX
    sound, sound_index = file.read_bytes(), index.read_bytes()
    free = ("exported_at", "last_ingest_time", "chain_hash", '"version"', "media_type", '"bytes"')
    places = [
        place
        for place, byte in enumerate(sound)
        if chr(byte).isdigit() and not any(word in _line(sound, place) for word in free)
    ]
    place = data.draw(st.sampled_from(places))
    digit = data.draw(st.sampled_from([d for d in b"0123456789" if d != sound[place]]))
    file.write_bytes(sound[:place] + bytes([digit]) + sound[place + 1 :])
    try:
        index_anew(directory)
        assert not check_evidence(directory).ok, _line(sound, place)
    finally:
        file.write_bytes(sound)
        index.write_bytes(sound_index)


def _line(data: bytes, place: int) -> str:
    start = data.rfind(b"\n", 0, place) + 1
    return data[start : data.find(b"\n", place)].decode()


# --- What was changed with care ---------------------------------------------------------------------------


def _swap_steps(manifest: dict[str, Any]) -> None:
    steps = manifest["steps"]
    steps[3]["name"], steps[4]["name"] = steps[4]["name"], steps[3]["name"]


CAREFUL: list[tuple[str, Edit, str]] = [
    ("parity", lambda d: d.update(match=False), "parity.json, match: says false, and it comes to true"),
    (
        "parity",
        lambda d: d["surfaces"]["loops"].update(live_rows=3),
        "parity.json, surfaces.loops.live_rows: says 3, and",
    ),
    ("parity", lambda d: d["surfaces"].update(more={}), "parity.json, surfaces.more: is not a field that evidence has"),
    ("parity", lambda d: d["surfaces"].pop("loops"), "parity.json, surfaces.loops: is missing"),
    ("parity", lambda d: d["scope"].update(position="6"), "parity.json, scope.position: Expected `int`, got `str`"),
    ("live_checksums", lambda d: d.update(checksum="A" * 64), "live-checksums.json, checksum: Expected `str` matching"),
    (
        "live_checksums",
        lambda d: d.update(checksum_algorithm="md5"),
        "live-checksums.json, checksum_algorithm: Invalid",
    ),
    ("live_checksums", lambda d: d["row_counts"].update(frames=-1), "live-checksums.json, row_counts.frames: Expected"),
    ("live_checksums", lambda d: d.update(checksum="a" * 64), 'live-checksums.json, checksum: says "aaaa'),
    ("manifest", _swap_steps, "manifest.json, steps: [3] is 'parity', 'live_checksums' comes there"),
    ("manifest", lambda d: d["steps"].pop(), "manifest.json, steps: there are 6, not 7: artifact_index"),
    ("manifest", lambda d: d["steps"].append(d["steps"][0]), "manifest.json, steps: there are 8, not 7: replay_state"),
    ("manifest", lambda d: d["steps"][2].update(return_code=4), "manifest.json, steps[2].return_code: is 4"),
    ("manifest", lambda d: d["steps"][2].update(return_code=1), "manifest.json, steps[2].return_code: Invalid enum"),
    ("manifest", lambda d: d.update(return_code=4), "manifest.json, return_code: is 4, that of its steps is 0"),
    ("manifest", lambda d: d["steps"][1].update(duration_us=5), "manifest.json, steps[1].duration_us: is 5, from its"),
    ("manifest", lambda d: d["artifacts"].update(more="x"), "manifest.json, artifacts: is "),
    ("manifest", lambda d: d["config"]["adapter"].update(name="x"), "manifest.json, config.adapter: is "),
    ("manifest", lambda d: d["scope"].update(execution_id=1), "manifest.json, scope: is "),
]


@pytest.mark.parametrize(("role", "edit", "expected"), CAREFUL, ids=[expected for _, _, expected in CAREFUL])
async def test_a_small_document_is_checked_in_itself(role: str, edit: Edit, expected: str, directory: Path) -> None:
    change(directory, role, edit)
    assert any(found.startswith(expected) for found in named(directory)), named(directory)


STATE, LIVE, PAYLOADS = FILES["replay_state"], FILES["live_rows"], FILES["payload_resolution"]
WITH_ROWS: list[tuple[str, str, str, str]] = [
    ("live_rows", '"step":"load"', '"step":"lead"', "live-checksums.json, projection_checksums.commands: says"),
    ("live_rows", '"step":"load"', '"step":"lead"', "parity.json, surfaces.commands: live and replayed rows differ"),
    (
        "live_rows",
        '"step":"load"',
        '"step":"lead"',
        "parity.json, differences[0]: commands row 9, field 'step': live \"lead\"",
    ),
    (
        "live_rows",
        '"step":"load"',
        '"step": "load"',
        f"{LIVE}, rows.commands, line 10: is not an object in canonical form",
    ),
    (
        "live_rows",
        '"step":"load"',
        '"step":"load","zoo":1',
        f"{LIVE}, rows.commands, row 9: has fields that such a row has not, or not so: zoo",
    ),
    ("live_rows", '"command_id":9', '"command_id":"9"', f"{LIVE}, rows.commands, row ?: has no id"),
    (
        "live_rows",
        '"loops":[\n',
        '"loops":[\n],\n"moons":[\n',
        f"{LIVE}, rows.moons: is not a surface that evidence has",
    ),
    ("live_rows", '"loops":[\n],\n', "", f"{LIVE}, rows.loops: is missing"),
    (
        "live_rows",
        '"frames":[\n],\n"loops":[\n],\n',
        '"loops":[\n],\n"frames":[\n],\n',
        f"{LIVE}, rows.frames: stands after 'loops'",
    ),
    ("live_rows", '"loops":[\n', '"loops":[\n\n', f"{LIVE}, rows.loops, line 18: is not an object in canonical form"),
    ("live_rows", '"row_counts"', '"more":1,\n"row_counts"', f"{LIVE}, more: is not a field that evidence has"),
    ("live_rows", '"schema":"noetl.evidence.live_rows/1",\n', "", f"{LIVE}, schema: is missing"),
    ("live_rows", ',"projection":"execution"', "", f"{LIVE}, scope.projection: is missing"),
    ("live_rows", '"exported_at"', '"imported_at"', f"{LIVE}, imported_at: is not a field that evidence has"),
    ("live_rows", '"name":"memory"', '"name":1', f"{LIVE}, adapter.name: Expected `str`, got `int`"),
    ("live_rows", '"rows":{', '"rows" : {', f"{LIVE}, line 6: is neither a field nor a row"),
    ("replay_state", '"step":"load"', '"step":"lead"', f"{STATE}, projection_checksums.commands: says"),
    ("replay_state", '"step":"load"', '"step":"lead"', f"{STATE}, checksum: says"),
    ("replay_state", '"events_folded":6', '"events_folded":5', f"{STATE}, events_folded: says 5, and it comes to 6"),
    ("replay_state", '\n"status":', '\n"status":"DONE",\n"last":', f"{STATE}, last: is not a field that evidence has"),
    ("replay_state", '"chain":"ok"', '"chain":"broken"', f"{STATE}, log.chain: is 'broken', with 0 problems"),
    ("replay_state", '"problems":[]', '"problems":["x"]', f"{STATE}, log.problems[0]: x"),
    (
        "replay_state",
        '"tenant_id":"acme"}',
        '"tenant_id":"evil"}',
        f'{STATE}, scope.tenant_id: says "evil", and it comes to "acme"',
    ),
    (
        "payload_resolution",
        '"error":null',
        '"error":"missing"',
        f"{PAYLOADS}, summary.unresolved: says 0, and it comes to 1",
    ),
    (
        "payload_resolution",
        '"error":null',
        '"error":"missing"',
        "manifest.json, steps[5].return_code: is 0: 'payload_resolution' does not hold",
    ),
    (
        "payload_resolution",
        '"sha256":"',
        '"sha256":"x',
        f"{PAYLOADS}, rows.payloads[0].sha256: Expected `str` matching",
    ),
]


@pytest.mark.parametrize(("role", "old", "new", "expected"), WITH_ROWS, ids=[item[3] + item[2] for item in WITH_ROWS])
async def test_a_document_with_rows_is_checked_in_itself(
    role: str, old: str, new: str, expected: str, directory: Path
) -> None:
    change_text(directory, role, lambda text: text.replace(old, new, 1))
    assert any(found.startswith(expected) for found in named(directory)), named(directory)


async def test_fields_stand_in_their_order(directory: Path) -> None:
    def swap(text: str) -> str:
        lines = text.splitlines(keepends=True)
        lines[1], lines[2] = lines[2], lines[1]
        return "".join(lines)

    change_text(directory, "live_rows", swap)
    assert named(directory) == [f"{LIVE}, (layout): its fields stand in another order"]


async def test_a_payload_that_was_left_out_is_missed(directory: Path) -> None:
    """The state has counted all of them."""

    def without(text: str) -> str:
        start = text.index('{"bytes"')
        return text[: start - 1] + text[text.index("\n]", start) :]

    change_text(directory, "payload_resolution", without)
    expected = f"{PAYLOADS}, rows.payloads: are not the 1 payloads that the state has counted"
    assert expected in named(directory)


# --- Files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
async def test_a_missing_file_is_named(name: str, directory: Path) -> None:
    (directory / name).unlink()
    assert named(directory)[0] == f"{name}, (file): is missing"


async def test_a_file_too_many_and_one_that_is_none_are_named(directory: Path) -> None:
    (directory / "notes.txt").write_text("x")
    (directory / ".hidden").mkdir()
    real = directory / "parity.json"
    real.rename(directory.parent / "parity.json")
    real.symlink_to(directory.parent / "parity.json")
    assert named(directory)[:3] == [
        ".hidden, (file): is not a part of evidence",
        "notes.txt, (file): is not a part of evidence",
        "parity.json, (file): is not a plain file",
    ]


async def test_all_that_is_wrong_is_said_in_one_go(directory: Path) -> None:
    (directory / "parity.json").unlink()
    change_after = json.loads((directory / "manifest.json").read_text())
    change_after["return_code"] = 4
    (directory / "manifest.json").write_bytes(msgspec.json.format(json.dumps(change_after).encode(), indent=2) + b"\n")
    (directory / "extra").touch()
    artefacts = {problem.artifact for problem in check_evidence(directory).problems}
    assert artefacts == {"parity.json", "manifest.json", "extra"}


def _index_edit(edit: Edit) -> Callable[[Path], None]:
    def change_index(directory: Path) -> None:
        index = json.loads((directory / INDEX).read_text())
        edit(index)
        (directory / INDEX).write_bytes(msgspec.json.format(json.dumps(index).encode(), indent=2) + b"\n")
        index_anew(directory)

    return change_index


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda d: d["entries"].pop(), "index.json, entries: role 'manifest' stands there 0 times, not once"),
        (
            lambda d: d["entries"].append(d["entries"][0]),
            "index.json, entries: role 'replay_state' stands there 2 times, not once",
        ),
        (
            lambda d: d["entries"][0].update(role="x"),
            "index.json, entries[0].role: 'x' is not a role that evidence has",
        ),
        (
            lambda d: d["entries"][3].update(path="manifest.json"),
            "index.json, entries[3].path: is 'manifest.json', not 'parity.json'",
        ),
        (lambda d: d["entries"].reverse(), "index.json, entries: the roles stand in another order"),
        (lambda d: d["scope"].update(position=7), "index.json, scope: is "),
        (
            lambda d: d.update(created_at="2026-03-02T08:00:00.000000Z"),
            "index.json, created_at: is not when the manifest ended",
        ),
    ],
)
async def test_the_index_has_each_role_once_and_is_of_this_evidence(edit: Edit, expected: str, directory: Path) -> None:
    _index_edit(edit)(directory)
    assert any(found.startswith(expected) for found in named(directory)), named(directory)
