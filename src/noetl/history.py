"""What a person may configure about history: how it is shortened, archived, let go of, copied and reckoned."""

from __future__ import annotations

import msgspec

from noetl.errors import InvalidSetting
from noetl.kinds import Amount, Price, parse_price
from noetl.units import Seconds

__all__ = ["ArchiveSettings", "LakeSettings", "Prices", "RetentionSettings", "Snapshots"]


class Snapshots(msgspec.Struct, frozen=True, kw_only=True):
    """How often state is saved, so that a replay need not start from the first event."""

    every: Amount = Amount(10_000)
    """Events of one stream between two snapshots; 0 for none, here and below."""
    on_completion: Amount = Amount(5_000)
    """An execution with more events than that has one more when it has ended."""
    sample: Amount = Amount(10)
    """One of so many snapshots is compared with a replay from the first event on."""
    keep: int = 3
    """How many of one stream are kept, the newest."""


class ArchiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where histories are archived, and when."""

    url: str | None = None
    """The store that bundles are kept in, by default a directory in the home; `options` say how it is reached."""
    options: tuple[str, ...] = ()
    on_completion: bool = False
    """Whether an execution is archived when it has ended, with all that it has called."""
    payloads: bool = False
    """Whether a bundle has a copy of every object that its events refer to; otherwise of playbooks only."""


class RetentionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When archived events may leave the ledger."""

    min_age: Seconds = Seconds(30 * 24 * 3600.0)
    """How long ago the last event of an execution must have been."""
    every: Seconds | None = None
    """How often the server that leads takes out what may go; without it, none does."""


class LakeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The event lake."""

    path: str | None = None
    """Its directory, by default `lake` in the home; a relative one counts from the working directory."""
    grace: Seconds = Seconds(24 * 3600.0)
    """How long a file that is no part of the lake any more stays for those who still read it."""


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """The unit prices by which `tenant_cost_fact` and the costs of executions are reckoned."""

    currency: str = "EUR"
    """What amounts are in; it is only shown."""
    second: Price = Price(0.0)
    """Of a second that a worker is busy with a command or a frame."""
    pools: tuple[str, ...] = ()
    """The same where a pool has a price of its own, such as `gpu=0.0012`."""
    execution: Price = Price(0.0)
    """Of an execution that begins."""
    million_rows: Price = Price(0.0)
    """Of a million rows that frames have committed."""
    stored_gib: Price = Price(0.0)
    """Of a GiB of payloads that were not stored before."""

    def by_pool(self) -> dict[str, float]:
        """The price of a second by pool. Raises InvalidSetting."""
        found = {}
        for text in self.pools:
            pool, sign, value = text.partition("=")
            if not sign or not pool.strip():
                raise InvalidSetting(f"prices.pools: '{text}' is not pool=price", hint='write it as ["gpu=0.0012"]')
            try:
                found[pool.strip()] = float(parse_price(value.strip()))
            except InvalidSetting as error:
                raise InvalidSetting(f"prices.pools: {error.message}", hint=error.hint) from None
        return found
