"""Names: how everything the system can speak of is addressed, and what follows from an address.

A name is derived and never looked up. From the coordinates of a piece of work follow its result's name,
its effect key, its shard and its object key; from a name follows its subject; from a worker's name, how
far it is from the data. All of it is text in and text out: nothing here knows a store, a broker or a
registry, and nothing here may ask one.

`segments` spells one segment and `address` the text around it, `locator` knows the forms, `coordinates`
the inside of a result name, `shards` the hash and the streams, `subjects` the NATS side, `locality` the
distance between places.
"""

from __future__ import annotations

from noetl.kernel.names.coordinates import (
    EffectKeys,
    FrameCoordinates,
    Home,
    ResultCoordinates,
    day_of,
    execution_prefix,
)
from noetl.kernel.names.locality import (
    Distance,
    Locality,
    Placement,
    distance,
    evaluate,
    locality_of,
    parse_distance,
    within,
)
from noetl.kernel.names.locator import (
    InfrastructureName,
    LegacyResult,
    Name,
    PayloadName,
    ResourceName,
    ResultName,
    from_urn,
    parse,
    to_urn,
)
from noetl.kernel.names.shards import (
    SHARD_COUNT,
    command_stream,
    dead_letter_stream,
    event_stream,
    fnv1a64,
    parse_shard,
    shard_label,
    shard_of,
)
from noetl.kernel.names.subjects import (
    CommandSubject,
    EventSubject,
    from_subject,
    parse_command_subject,
    parse_event_subject,
    to_subject,
)

__all__ = [
    "SHARD_COUNT",
    "CommandSubject",
    "Distance",
    "EffectKeys",
    "EventSubject",
    "FrameCoordinates",
    "Home",
    "InfrastructureName",
    "LegacyResult",
    "Locality",
    "Name",
    "PayloadName",
    "Placement",
    "ResourceName",
    "ResultCoordinates",
    "ResultName",
    "command_stream",
    "day_of",
    "dead_letter_stream",
    "distance",
    "evaluate",
    "event_stream",
    "execution_prefix",
    "fnv1a64",
    "from_subject",
    "from_urn",
    "locality_of",
    "parse",
    "parse_command_subject",
    "parse_distance",
    "parse_event_subject",
    "parse_shard",
    "shard_label",
    "shard_of",
    "to_subject",
    "to_urn",
    "within",
]
