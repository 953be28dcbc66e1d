"""The commands for authors: new."""

import click

from pv.commands.terminal import print_whole


@click.command()
@click.argument("name", default="")
@click.option("--subject", default="", metavar="MODULE:FUNCTION", help="Write a contract about this function.")
def new(name: str, subject: str) -> None:
    """Write a first contract, with a falsifier and a mutant.

    Without --subject, a small example that passes. NAME is the id of the contract (default: that of the function, or
    `example`). Files that exist are never changed.
    """
    from pv.commands.new import new as write

    written = write(name, subject=subject)
    lines = [f"wrote {path}" for path in written.files] + list(written.advice)
    print_whole("".join(f"{line}\n" for line in [*lines, f"next: {written.commands[0]}"]))


COMMANDS = (new,)
