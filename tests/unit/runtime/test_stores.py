"""Object stores as the settings name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.adapters.objects.encrypted import EncryptedObjectStore
from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.errors import InvalidSetting
from noetl.runtime.home import Home
from noetl.runtime.stores import is_on_this_disk, open_objects, read_pairs
from noetl.settings import Payloads, Settings


def with_payloads(**said: object) -> Settings:
    return Settings(payloads=Payloads(**said))  # type: ignore[arg-type]  # fields of several types


async def test_by_default_they_are_a_directory_of_the_home(tmp_path: Path) -> None:
    assert isinstance(await open_objects(Home(tmp_path), Settings()), FilesystemObjectStore)


async def test_they_are_encrypted_where_the_settings_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOETL_PAYLOAD_KEY", raising=False)
    store = await open_objects(Home(tmp_path), with_payloads(encrypt=True))
    assert isinstance(store, EncryptedObjectStore)
    assert not (tmp_path / "wallet").exists(), "no key before there is something to encrypt"
    await store.put("acme/a", b"content")
    assert (tmp_path / "wallet" / "payloads.key").stat().st_mode & 0o777 == 0o600
    assert b"content" not in (tmp_path / "payloads" / "acme" / "a").read_bytes()


async def test_options_need_an_address(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"payloads.options is set, but not payloads.url"):
        await open_objects(Home(tmp_path), with_payloads(options=("region=x",)))


@pytest.mark.parametrize(
    ("url", "here"), [(None, True), ("file:///data", True), ("memory://", True), ("s3://b", False), ("az://b", False)]
)
def test_only_what_is_elsewhere_is_worth_a_copy_on_disk(url: str | None, here: bool) -> None:
    assert is_on_this_disk(with_payloads(url=url)) is here


def test_pairs() -> None:
    assert read_pairs("payloads.options", ["a = 1", "b=x=y"]) == {"a": "1", "b": "x=y"}
    with pytest.raises(InvalidSetting, match=r"payloads.options: 'c' has no value"):
        read_pairs("payloads.options", ["c"])
