"""Exit codes, and errors as a person should see them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click
import msgspec

from noetl.errors import Corruption, Forbidden, InvalidInput, NoetlError, Unauthenticated, Unavailable

__all__ = ["FAILED", "MISMATCH", "OK", "UNAVAILABLE", "USAGE", "run_guarded"]

OK, FAILED, USAGE, UNAVAILABLE, MISMATCH = 0, 1, 2, 3, 4
_INTERRUPTED = 130


def run_guarded(command: click.Command, args: Sequence[str]) -> int:
    """Run a command; whatever goes wrong becomes one message and the right exit code."""
    try:
        result = command.main(args=list(args), prog_name="noetl", standalone_mode=False, color=_color())
        return result if isinstance(result, int) else OK
    except click.ClickException as error:
        error.show()
        return USAGE
    except click.Abort:
        click.echo("interrupted", err=True)
        return _INTERRUPTED
    except NoetlError as error:
        _report(error, "--json" in args)
        return code_of(error)
    except BrokenPipeError:
        _let_go_of_stdout()
        return OK
    except SystemExit as leaving:
        if leaving.code != FAILED:
            raise
        _let_go_of_stdout()  # click and rich leave like this when the reader of a pipe has gone
        return OK
    except OSError as error:
        _let_go_of_stdout()
        _report(Unavailable(f"{error.filename or 'standard output'}: {error.strerror or error}"), as_json=False)
        return UNAVAILABLE


def code_of(error: NoetlError) -> int:
    """The exit code of a branch of the error tree."""
    if isinstance(error, Corruption):
        return MISMATCH
    if isinstance(error, Unavailable):
        return UNAVAILABLE
    return USAGE if isinstance(error, (InvalidInput, Unauthenticated, Forbidden)) else FAILED


def _report(error: NoetlError, as_json: bool) -> None:
    if as_json:
        document = {"error": {"kind": type(error).__name__, "message": error.message, "hint": error.hint}}
        click.echo(msgspec.json.encode(document).decode())
    click.secho("error: ", fg="red", bold=True, err=True, nl=False, color=_color())
    click.echo(error.message, err=True)
    if error.hint:
        click.secho("  fix: ", fg="cyan", err=True, nl=False, color=_color())
        click.echo(error.hint, err=True)


def _color() -> bool | None:
    """None leaves it to click, which colours terminals only; it does not know https://no-color.org by itself."""
    return False if os.environ.get("NO_COLOR") else None


def _let_go_of_stdout() -> None:
    """The reader of our pipe has gone; say nothing more, also not while Python shuts down."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
