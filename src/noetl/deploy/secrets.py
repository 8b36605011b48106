"""Fresh secrets for an installation in containers."""

from __future__ import annotations

import secrets

from noetl.deploy import compose, kubernetes
from noetl.deploy.shape import WORKER_TOKEN, as_yaml
from noetl.runtime.custody import new_token

__all__ = ["compose_secrets", "kubernetes_secrets"]

_KEY_BYTES = 32


def compose_secrets() -> str:
    """The text of `.env` beside the Compose file."""
    values = {name: _fresh(name) for name in compose.SECRETS}
    return (
        "# Whoever can read this can do everything. Keep NOETL_WALLET__KEK: credentials are sealed with it.\n"
        + "".join(f"{name}={value}\n" for name, value in values.items())
    )


def kubernetes_secrets(database: str, queue: str) -> str:
    """The Secret of the manifests, for a database and a NATS that are there."""
    known = {"NOETL_LEDGER__URL": database, "NOETL_NATS__URL": queue}
    values = {name: known.get(name) or _fresh(name) for name in kubernetes.SECRETS}
    about = "Whoever can read this can do everything. Keep NOETL_WALLET__KEK: credentials are sealed with it."
    return as_yaml(kubernetes.secret_document(values), about=about)


def _fresh(name: str) -> str:
    return new_token() if name == WORKER_TOKEN else secrets.token_hex(_KEY_BYTES)
