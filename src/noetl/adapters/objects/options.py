"""How a store is reached: what may be set, and what may not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec

from noetl.adapters.objects.creation import CreateOnly
from noetl.errors import InvalidInput, InvalidSetting
from noetl.settings import Seconds, parse_duration

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

__all__ = ["AzureOptions", "GoogleOptions", "Options", "S3Options", "read_options", "suggest"]

O = TypeVar("O", bound="Options")  # noqa: E741


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every kind of bucket understands."""

    endpoint: str | None = None
    """The address of a store that is not the provider's own."""
    anonymous: bool = False
    """Send no credentials, for a public bucket."""
    create_only: CreateOnly = "checked"
    lists_in_order: bool | None = None
    """Whether the store lists by key, as the providers' own do; by default a store at an endpoint is not trusted to."""
    timeout: Seconds = Seconds(60.0)
    """How long one request may take; a request carries at most one part of 8 MiB."""
    connect_timeout: Seconds = Seconds(5.0)
    retries: int = 6
    """How often a request that failed for a passing reason is sent again."""
    retry_for: Seconds = Seconds(60.0)
    """How long after the first attempt a request may be sent again."""
    ca_file: str | None = None
    """Certificates to trust beside the system's, as PEM."""
    proxy: str | None = None

    def __post_init__(self) -> None:
        for name in ("endpoint", "proxy"):
            if (address := getattr(self, name)) is not None:
                _check_address(name, address)
        if self.retries < 0:
            raise ValueError("retries is 0 or more")

    def client_options(self) -> ClientConfig:
        """For the library: how it makes connections."""
        settings: ClientConfig = {
            "allow_http": (self.endpoint or "").startswith("http://"),
            "timeout": timedelta(seconds=self.timeout),
            "connect_timeout": timedelta(seconds=self.connect_timeout),
        }
        if self.proxy:
            settings["proxy_url"] = self.proxy
        if self.ca_file:
            settings["root_certificate"] = _certificates(self.ca_file)
        return settings

    def retry_config(self) -> RetryConfig:
        """For the library: when it tries again. Waits grow from a tenth of a second to five."""
        return {
            "max_retries": self.retries,
            "retry_timeout": timedelta(seconds=self.retry_for),
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=5),
                "base": 2,
            },
        }


class S3Options(Options, frozen=True, kw_only=True):
    """S3 and what is compatible with it."""

    region: str | None = None
    path_style: bool | None = None
    """Whether the bucket stands in the path or in the host name; by default in the path if there is an endpoint."""
    encryption: str | None = None
    """Server-side encryption: AES256 or aws:kms."""
    kms_key_id: str | None = None


class GoogleOptions(Options, frozen=True, kw_only=True):
    """Google Cloud Storage."""


class AzureOptions(Options, frozen=True, kw_only=True):
    """Azure Blob."""

    account: str | None = None


def read_options(kind: type[O], given: Mapping[str, object], where: str) -> O:
    """The options as their kind, or InvalidInput that names the one that is wrong."""
    known = [field.name for field in msgspec.structs.fields(kind)]
    for name in given:
        if name not in known:
            raise InvalidInput(f"{where} has no option '{name}'", hint=suggest(name, known))
    try:
        durations = {
            field.name: parse_duration(given[field.name])
            for field in msgspec.structs.fields(kind)
            if field.type is Seconds and field.name in given
        }
        return msgspec.convert({**given, **durations}, kind, strict=False)
    except (msgspec.ValidationError, InvalidSetting) as error:
        raise InvalidInput(f"an option of {where} is wrong: {error}") from None


def suggest(name: str, known: Iterable[str]) -> str:
    """The name that was probably meant, or all there are."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known) or 'none'}"


def _check_address(name: str, address: str) -> None:
    """The library trusts an address to be one and would panic; and one with a password would be shown."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        raise ValueError(f"{name} is not an address") from None
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or port == 0
        or not address.isprintable()
        or " " in address
    ):
        raise ValueError(f"{name} is an address that begins with https:// or http://")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError(f"{name} has neither a user nor a query; credentials are given apart from options")


def _certificates(file: str) -> bytes:
    try:
        return Path(file).expanduser().read_bytes()
    except OSError as error:
        raise InvalidInput(f"ca_file '{file}' cannot be read: {error.strerror}") from None
