"""How the routes of workers show in the API's own description. They are plain routes, so nobody else describes them."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.ports.credentials import Credential
from noetl.runtime.calls import Found
from noetl.runtime.remote import wire
from noetl.runtime.remote.roster import Pools
from noetl.server.wire import described

__all__ = ["paths_of_workers"]

_COMMAND = {
    "name": "command_id", "in": "path", "required": True,
    "schema": {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1},
}  # fmt: skip


class Nothing(msgspec.Struct):
    """It is done."""


class CommandCredential(wire.CredentialRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A credential that the command uses. Its own name is that of another type of the description."""


class ClaimedCommand(msgspec.Struct, kw_only=True):
    """A command, and all that is needed to run it; `playbook` is null if the worker knows the document."""

    token: int
    stage: int
    ended: bool
    document: str
    playbook: Any
    work: dict[str, Any]


_ABOUT_COMMANDS: dict[str, tuple[str, type, type]] = {
    "claim": ("Take a command", wire.ClaimRequest, ClaimedCommand),
    "heartbeat": ("Keep a command", wire.BeatRequest, Nothing),
    "report": ("Say what came of a command", wire.ReportRequest, wire.Taken),
    "release": ("Leave a command to others", wire.Asked, Nothing),
    "result": ("The whole result of a step", wire.ResultRequest, wire.Value),
    "playbook": ("The playbook that a command calls", wire.PlaybookRequest, Found),
    "read": ("What is kept under an address", wire.ReadRequest, wire.Value),
    "store": ("Keep bytes", wire.StoreRequest, wire.Value),
}


def paths_of_workers() -> dict[str, Any]:
    """Every path that workers ask, as OpenAPI has it."""
    found: dict[str, Any] = {
        wire.path_of(0, what).replace("/0/", "/{command_id}/"): {
            "post": {**_operation(summary, takes, gives), "parameters": [_COMMAND]}
        }
        for what, (summary, takes, gives) in _ABOUT_COMMANDS.items()
    }
    for path in (wire.REGISTER, "/api/worker/pool/heartbeat"):
        found[path] = {"post": _operation("Let a worker in", wire.Hello, wire.Welcome)}
    found[wire.DEREGISTER] = {"post": _operation("A worker goes", wire.Goodbye, Nothing)}
    found["/api/credentials/resolve"] = {"post": _operation("A credential of a command", CommandCredential, Credential)}
    found["/api/worker/pools"] = {"get": _operation("Which workers there are", None, Pools)}
    return found


def _operation(summary: str, takes: type | None, gives: type) -> dict[str, Any]:
    said = described(gives, 404, 409, takes=takes)
    return {
        "tags": ["workers"],
        "summary": summary,
        "responses": {str(status): response for status, response in sorted(said["responses"].items())},
        **said.get("openapi_extra", {}),
    }
