"""The command's front door: it knows the names of all commands and imports none of them.

`noetl --help` must answer at once, so the one-line help of each command stands here.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

import click

from noetl import __version__
from noetl.cli.ending import Ending
from noetl.cli.exits import run_guarded

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["VARIABLE", "cli", "main"]

VARIABLE = "_NOETL_COMPLETE"
"""Set by the scripts of `noetl completion`: a call with it is a question, not a command."""

_COMMANDS = {
    "init": ("init", "Make a project that works, to begin from."),
    "run": ("run", "Run a playbook, here or on a server."),
    "resume": ("resume", "Go on with an execution that was interrupted."),
    "retry": ("retry", "Go on from a step of an earlier execution, in a new one."),
    "status": ("status", "Show what has become of an execution."),
    "result": ("result", "Show the result of an execution or of a step."),
    "cancel": ("cancel", "End an execution from outside."),
    "schedule": ("schedule", "Have playbooks run by the clock."),
    "register": ("register", "Put playbooks into the catalog."),
    "catalog": ("catalog", "Look at what was registered."),
    "validate": ("validate", "Check playbooks and subscriptions, and say what to fix."),
    "graph": ("graph", "Draw a playbook as Mermaid text or SVG."),
    "schema": ("schema", "Print the JSON Schema that editors complete and check with."),
    "list": ("list_", "List executions, newest first."),
    "logs": ("logs", "Show what the tasks of an execution have printed."),
    "events": ("events", "Show an execution's events, page by page."),
    "replay": ("replay", "Rebuild the state as of an event, a position or a time."),
    "diff": ("diff", "Show what changed between two moments."),
    "verify": ("verify", "Prove that the log and the live state are what was written."),
    "evidence": ("evidence", "Give evidence of a run, and check it anywhere."),
    "sql": ("sql", "Ask the history of all executions in SQL, as of any moment."),
    "gc": ("gc", "Find stored objects that nothing refers to any more, and delete them."),
    "payloads": ("payloads", "Encrypt stored payloads, and change their key."),
    "repair": ("repair", "Bring back stored objects that are missing or damaged."),
    "lake": ("lake", "Keep a copy of all events as Parquet, for questions about all of them."),
    "archive": ("archive", "Archive executions as signed bundles, and look at them."),
    "restore": ("restore", "Bring an archived execution back into a ledger."),
    "rebuild": ("rebuild", "Make all rows anew, compare them, and put them in place."),
    "retention": ("retention", "Take archived executions out of the ledger when they are old enough."),
    "hold": ("hold", "Keep an execution in the ledger, whatever its age."),
    "import": ("import_", "Bring a log from a file into the ledger."),
    "export": ("export", "Write an execution's log to a file."),
    "push": ("push", "Deliver an execution that ran here to a server."),
    "credential": ("credential", "Store secrets by name, sealed, for playbooks to refer to."),
    "token": ("token", "Make and revoke the tokens that callers of a server need."),
    "db": ("db", "Prepare the Postgres database that a ledger is kept in."),
    "server": ("server", "Start, stop and look at the server of this home."),
    "outbox": ("outbox", "Publish what was committed to NATS JetStream."),
    "worker": ("worker", "Run commands for a server, without a database."),
    "materializer": ("materializer", "Copy a log that is kept on JetStream into its database."),
    "topology": ("topology", "Show which workers there are, and where."),
    "projector": ("projector", "Project what was published into rows, or all rows anew."),
    "up": ("up", "Start the whole stack on this machine."),
    "down": ("down", "Stop the stack of this machine."),
    "deploy": ("deploy", "Write the files by which an installation runs in containers."),
    "spark": ("spark", "Keep a Spark session warm between runs."),
    "context": ("context", "Name the servers you work with, and choose one."),
    "doctor": ("doctor", "Check that everything a run may need is here."),
    "config": ("config", "Show every setting and where it came from."),
    "completion": ("completion", "Print the script that makes a shell complete noetl."),
}
# Other spellings that are understood, and shown nowhere.
_ALIASES = {"exec": "run", "execute": "run"}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = _ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"noetl.cli.commands.{_COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        if VARIABLE in os.environ:
            from noetl.cli.completion import prepare

            return prepare(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """The commands by the table above; click would import them all to ask for their help."""
        from click.shell_completion import CompletionItem

        known = {name: text for name, (_, text) in _COMMANDS.items() if name.startswith(incomplete)}
        names = [CompletionItem(name, help=text) for name, text in known.items()]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(error.message + _suggestion(args[0]), ctx) from None


def _suggestion(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, _COMMANDS, n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


@click.group(
    cls=_Lazy,
    epilog="Exit codes: 0 ok, 1 the execution failed, 2 bad usage or input, 3 a dependency is unavailable, "
    "4 verification found a mismatch.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="noetl %(version)s")
def cli() -> None:
    """NoETL runs data pipelines that can be proven."""


def main() -> None:
    """Run the command line and leave with its exit code."""
    ending = Ending()
    ending.code = run_guarded(cli, sys.argv[1:])
    sys.exit(ending.code)
