"""noetl completion: teach a shell what can be typed."""

from __future__ import annotations

import click

from noetl.cli.completion import SHELLS, script

__all__ = ["command"]


@click.command(epilog='Example: eval "$(noetl completion bash)"')
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete commands, options, files, step names and executions.

    For every new shell, add the example's line to ~/.bashrc, or the same with zsh to ~/.zshrc; for fish write the
    script to ~/.config/fish/completions/noetl.fish.
    """
    click.echo(script(shell, ctx.find_root().command), nl=False)
