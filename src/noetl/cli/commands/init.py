"""noetl init: a project that works, to begin from."""

from __future__ import annotations

from pathlib import Path

import click

from noetl.errors import InvalidInput, Unavailable

__all__ = ["command"]

_SETTINGS = """\
# Settings of this project; `noetl config view` shows every value and where it came from.
# The home of this project is .noetl/ beside this file.

[tenant]
# id = "default"

[snapshots]
# every = 10000
"""

_HELLO = """\
# Run it:  noetl run hello.yaml --set who=Ada
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: hello, path: hello}
workload: {who: world}
workflow:
  - step: start
    tool:
      kind: python
      input: {who: "{{ who }}"}
      code: |
        result = {"greeting": f"Hello, {who}!"}
    next: {arcs: [{step: shout}]}
  - step: shout
    tool:
      kind: python
      input: {text: "{{ start.greeting }}"}
      code: |
        result = {"shouted": text.upper()}
"""

_FILES = {"noetl.toml": _SETTINGS, "hello.yaml": _HELLO, ".gitignore": ".noetl/\n"}


@click.command(epilog="Example: noetl init my-project && cd my-project && noetl run hello.yaml")
@click.argument("directory", type=click.Path(path_type=Path), default=Path())
def command(directory: Path) -> None:
    """Make DIRECTORY a NoETL project: settings, a playbook to run, and a home of its own.

    Files that are there already are left alone.
    """
    if directory.exists() and not directory.is_dir():
        raise InvalidInput(f"{directory} is not a folder")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in _FILES.items():
            _write(directory / name, text)
    except OSError as error:
        raise Unavailable(f"cannot write into {directory}: {error.strerror}") from None
    here = "" if directory == Path() else f"cd {directory} && "
    click.echo(f"\nNext: {here}noetl run hello.yaml --set who=Ada")


def _write(path: Path, text: str) -> None:
    if path.exists():
        click.echo(f"  kept    {path}")
        return
    path.write_text(text, encoding="utf-8")
    click.echo(f"  created {path}")
