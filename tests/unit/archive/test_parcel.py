"""A parcel: tar that any tar can read, taken in any pieces, and nothing else taken."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.archive.parcel import Unpacker, pack
from noetl.errors import IntegrityMismatch, InvalidInput

LARGE = bytes(range(256)) * 9
SHA256 = hashlib.sha256(LARGE).hexdigest()
EMPTY = hashlib.sha256(b"").hexdigest()


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("local")
    for name in ("12", "7"):
        (place / name / "payloads").mkdir(parents=True)
        (place / name / "metadata.json").write_text("{}")
        (place / name / "events.feather").write_bytes(b"E" * 512)
        (place / name / "commands.feather").write_bytes(b"C")
    (place / "12" / "payloads" / SHA256).write_bytes(LARGE)
    (place / "7" / "payloads" / EMPTY).write_bytes(b"")
    return [place / "12", place / "7"]


def unpacked(data: bytes, place: Path, sizes: list[int] | None = None) -> list[Path]:
    unpacker = Unpacker(place)
    stream = io.BytesIO(data)
    try:
        for size in sizes or []:
            unpacker.feed(stream.read(size))
        unpacker.feed(stream.read())
        return unpacker.finish()
    finally:
        unpacker.close()


def contents(place: Path) -> dict[str, bytes]:
    return {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def test_its_length_is_known_and_any_tar_reads_it(directories: list[Path]) -> None:
    parcel = pack(directories)
    data = b"".join(parcel.chunks())
    assert len(data) == parcel.length
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert archive.getnames() == [
            "12/metadata.json", "12/events.feather", f"12/payloads/{SHA256}",
            "7/metadata.json", "7/events.feather", f"7/payloads/{EMPTY}",
        ]  # fmt: skip


@given(st.lists(st.integers(min_value=1, max_value=3000), max_size=30))
def test_the_pieces_in_which_it_comes_do_not_matter(
    directories: list[Path], tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    place = tmp_path_factory.mktemp("room")
    data = b"".join(pack(directories).chunks())
    assert [folder.name for folder in unpacked(data, place, sizes)] == ["12", "7"]
    found = contents(place)
    assert found[f"12/payloads/{SHA256}"] == LARGE
    assert found["7/events.feather"] == b"E" * 512
    assert len(found) == 6


def test_a_payload_must_be_what_its_name_says(tmp_path: Path) -> None:
    data = tar((tarfile.TarInfo(f"7/payloads/{SHA256}"), b"other"))
    with pytest.raises(IntegrityMismatch, match=f"7/payloads/{SHA256} is damaged"):
        unpacked(data, tmp_path)


@pytest.mark.parametrize(
    "name",
    ["../7/metadata.json", "/7/metadata.json", "7/../../etc", "7/payloads/../x", "07/metadata.json", "7/other",
     "7/commands.feather", f"7/payloads/{SHA256.upper()}", "7/payloads/", "٧/metadata.json", "7/metadata.json\n"],
)  # fmt: skip
def test_other_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="a parcel has no"):
        unpacked(tar((tarfile.TarInfo(name), b"x")), tmp_path)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_other_kinds_are_refused(kind: bytes, tmp_path: Path) -> None:
    info = tarfile.TarInfo("7/metadata.json")
    info.type, info.linkname = kind, "/etc/passwd"
    with pytest.raises(InvalidInput, match="a parcel has no"):
        unpacked(tar((info, b"")), tmp_path)
    assert contents(tmp_path) == {}


def test_a_file_comes_once(tmp_path: Path) -> None:
    data = tar((tarfile.TarInfo("7/metadata.json"), b"a"), (tarfile.TarInfo("7/metadata.json"), b"b"))
    with pytest.raises(InvalidInput, match="in the parcel twice"):
        unpacked(data, tmp_path)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda data: data[:600], "cut short"),
        (lambda data: b"", "cut short"),
        (lambda data: data[:-1024], "cut short"),
        (lambda data: data + b"more", "goes on after its end"),
        (lambda data: b"{" + data[1:], "not a parcel"),
        (lambda data: b"<html>" * 200, "not a parcel"),
    ],
)
def test_what_is_no_parcel(
    spoil: Callable[[bytes], bytes], reason: str, directories: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        unpacked(spoil(b"".join(pack(directories).chunks())), tmp_path)


def test_a_file_that_shrinks_while_it_is_sent_is_noticed(tmp_path: Path) -> None:
    place = tmp_path / "7"
    (place / "payloads").mkdir(parents=True)
    (place / "metadata.json").write_text("{}")
    (place / "events.feather").write_bytes(b"E" * 100)
    parcel = pack([place])
    (place / "events.feather").write_bytes(b"E")
    with pytest.raises(IntegrityMismatch, match="became shorter"):
        list(parcel.chunks())
