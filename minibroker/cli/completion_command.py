"""`minibroker completion`: the script by which a shell completes commands, options and names; click writes it."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_MINIBROKER_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script for a shell that completes commands, options, topics, groups, messages and settings.

    Names of topics and groups come from the server, if it answers within half a second. In ~/.zshrc, the script belongs
    after compinit.

    \b
    Example:
        minibroker completion bash >> ~/.bashrc
        minibroker completion zsh >> ~/.zshrc
        minibroker completion fish > ~/.config/fish/completions/minibroker.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "minibroker", VARIABLE).source())
