"""noetl deploy: files for container engines and clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.exits import MISMATCH, OK
from noetl.cli.output import note, print_json
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    from noetl.deploy.shape import Shape

__all__ = ["command"]

_MOST = 1000


@click.group("deploy")
def command() -> None:
    """Write the files by which an installation runs in containers."""


def _shaped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that both kinds of files have."""
    options = [
        click.option("--out", type=click.Path(path_type=Path), default="deploy", show_default=True, metavar="DIR",
                     help="The directory to write to."),
        click.option("--check", is_flag=True, help="Write nothing; exits 4 if a file is not what it would be."),
        click.option("--image", metavar="NAME", help="The image of all processes; noetl and this release by default."),
        click.option("--workers", type=click.IntRange(1, _MOST), metavar="N", help="How many workers; 2 by default."),
        click.option("--projectors", type=click.IntRange(1, 256), metavar="N",
                     help="How many projectors; 2 by default."),
        click.option("--spark", type=click.IntRange(0, _MOST), metavar="N",
                     help="How many workers for pool spark; 1 by default."),
        click.option("--set", "given", multiple=True, metavar="SECTION.KEY=VALUE",
                     help="A setting of every process; may be repeated."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@command.command(epilog="Example: noetl deploy compose --workers 4 --set payloads.url=s3://bucket/noetl")
@_shaped
def compose(out: Path, check: bool, as_json: bool, **chosen: Any) -> int:
    """Write compose.yaml and a Dockerfile: the whole stack on one machine with a container engine."""
    from noetl.deploy.compose import compose_file
    from noetl.deploy.dockerfile import docker_file

    return _done({"compose.yaml": compose_file(_shape(chosen)), "Dockerfile": docker_file()}, out, check, as_json)


@command.command(epilog="Example: noetl deploy kubernetes --image registry.example.com/noetl:1.0 --projectors 4")
@click.option("--servers", type=click.IntRange(1, _MOST), metavar="N", help="How many servers; 2 by default.")
@_shaped
def kubernetes(out: Path, check: bool, as_json: bool, **chosen: Any) -> int:
    """Write manifests for Kubernetes below `kubernetes`: everything but Postgres, NATS and a bucket for payloads.

    The bucket is s3://noetl/payloads, unless --set payloads.url=... says otherwise.
    """
    from noetl.deploy.kubernetes import kubernetes_files

    files = {f"kubernetes/{name}": text for name, text in kubernetes_files(_shape(chosen)).items()}
    return _done(files, out, check, as_json)


@command.command(epilog="Example: noetl deploy secrets > deploy/.env")
@click.option("--kubernetes", "manifest", is_flag=True, help="As a Secret of Kubernetes, instead of a file .env.")
@click.option("--database", metavar="URL", envvar="NOETL_DATABASE", show_envvar=True, help="How Postgres is reached.")
@click.option("--nats", metavar="URL", envvar="NOETL_NATS__URL", show_envvar=True, help="How NATS is reached.")
def secrets(manifest: bool, database: str | None, nats: str | None) -> int:
    """Print fresh passwords, keys and tokens for an installation. Keep them: they are nowhere else."""
    from noetl.deploy.secrets import compose_secrets, kubernetes_secrets

    if not manifest:
        click.echo(compose_secrets(), nl=False)
        return OK
    if database is None or nats is None:
        raise click.UsageError("--kubernetes needs --database and --nats: manifests bring neither of them")
    from noetl.deploy.roles import variables

    variables({"ledger.url": database, "nats.url": nats})
    click.echo(kubernetes_secrets(database, nats), nl=False)
    return OK


def _shape(chosen: Mapping[str, Any]) -> Shape:
    from noetl.deploy.shape import Shape

    settings = dict(_pair(text) for text in chosen["given"])
    names = ("image", "servers", "workers", "projectors", "spark")
    given: dict[str, Any] = {name: chosen[name] for name in names if chosen.get(name) is not None}
    return Shape(settings=settings, **given)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or "." not in name:
        raise InvalidInput(f"--set: '{text}' is not SECTION.KEY=VALUE", hint="such as payloads.url=s3://bucket/noetl")
    return name, value


def _done(files: Mapping[str, str], out: Path, check: bool, as_json: bool) -> int:
    from noetl.deploy.files import differing, write_files

    changed = differing(out, files) if check else [str(path.relative_to(out)) for path in write_files(out, files)]
    if as_json:
        print_json({"directory": str(out), "files": sorted(files), "differing" if check else "written": changed})
    elif check:
        for name in changed:
            note(f"{out / name} is not what noetl deploy would write")
    else:
        note(f"wrote {len(changed)} of {len(files)} files below {out}; the others were up to date")
    return MISMATCH if check and changed else OK
