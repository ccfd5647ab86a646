"""`headwater completion`: the script that teaches a shell our commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of SHELL.

    Put `eval "$(headwater completion bash)"` into ~/.bashrc (zsh: ~/.zshrc), or write fish's to
    ~/.config/fish/completions/headwater.fish.
    """
    from headwater.cli import program

    if (completion := get_completion_class(shell)) is not None:
        click.echo(completion(program, {}, "headwater", "_HEADWATER_COMPLETE").source())
