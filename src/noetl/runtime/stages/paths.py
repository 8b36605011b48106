"""The paths at which slots of other processes ask for frames: the same on the loopback listener and on a server."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["CARRIER_ROUTE", "SLOT_ROUTES", "SlotPath", "read_path"]

CARRIER_ROUTE = "/api/carriers/next"
"""Where the carriers of slots ask for them. Only the process that has started them answers, on loopback."""
SLOT_ROUTES = (
    "/api/stages/{stage_id}/frames/claim",
    "/api/stages/{stage_id}/frames/open",
    "/api/stages/{stage_id}/frames/finish",
    "/api/stages/{stage_id}/credential",
    "/api/stages/{stage_id}/kit",
    "/api/stages/{stage_id}/keychain",
    "/api/stages/{stage_id}/call",
    "/api/frames/heartbeat",
    "/api/frames/commit",
    "/api/frames/{frame_id}/heartbeat",
    "/api/frames/{frame_id}/commit",
)
_STAGE = re.compile(
    r"/api/stages/([0-9]{1,19})/(frames/claim|frames/open|frames/finish|credential|kit|keychain|call)", re.ASCII
)
_FRAME = re.compile(r"/api/frames/(?:([0-9]{1,19})/)?(heartbeat|commit)", re.ASCII)


class SlotPath(NamedTuple):
    """What a path asks for: `action` of a stage or of frames, all those in the body unless one is named."""

    action: str
    stage_id: int | None = None
    frame_id: int | None = None


def read_path(path: str) -> SlotPath | None:
    """What a slot asks for; None for any other path."""
    found = _STAGE.fullmatch(path)
    if found is not None:
        return SlotPath(found[2], stage_id=int(found[1]))
    found = _FRAME.fullmatch(path)
    if found is not None:
        return SlotPath(found[2], frame_id=None if found[1] is None else int(found[1]))
    return None
