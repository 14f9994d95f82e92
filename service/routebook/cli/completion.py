"""`routebook completion bash|zsh|fish`"""

import click
from click.shell_completion import get_completion_class

_HOW = {
    "bash": 'eval "$(routebook completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(routebook completion zsh)"  # in ~/.zshrc',
    "fish": "routebook completion fish | source  # in ~/.config/fish/config.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(sorted(_HOW)))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print what makes a shell complete routebook's commands.

    \b
    bash: eval "$(routebook completion bash)"
    zsh:  eval "$(routebook completion zsh)"
    fish: routebook completion fish | source
    """
    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"{shell} cannot be completed.")
    root = context.find_root().command
    # Not `source()`: for bash that asks the installed shell for its version, which may not be there.
    script = made(root, {}, "routebook", "_ROUTEBOOK_COMPLETE")
    click.echo(f"# {_HOW[shell]}")
    click.echo(script.source_template % script.source_vars())
