"""The command `pv`, which converts exceptions to a message and an exit code."""

import errno
import sys
from typing import Any

import click

from pv import __version__
from pv.commands.terminal import discard_output
from pv.errors import ExitCode, PvError

OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EPIPE, errno.EBADF)


class _Command(click.Group):
    """The group of all commands. A usage error exits with 3, not with click's 2, since 2 means undecided in `pv`."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **{"complete_var": "_PV_COMPLETE", **kwargs, "standalone_mode": False})
        except click.ClickException as error:
            error.show()
            sys.exit(ExitCode.REFUSED)
        except click.Abort:
            sys.exit(ExitCode.INTERRUPTED)
        except PvError as error:
            click.echo(f"pv: {error}", err=True)
            sys.exit(ExitCode.REFUSED)
        except Exception as error:
            if isinstance(error, OSError) and (problem := _describe(error)):
                click.echo(f"pv: {problem}", err=True)
                sys.exit(ExitCode.REFUSED)
            import traceback  # its import takes a tenth of the time of `pv --help`

            traceback.print_exc()
            click.echo("pv: this is a bug in pv, not in your contract; please report the lines above", err=True)
            sys.exit(ExitCode.BUG)


def _describe(error: OSError) -> str:
    """Return a message that names the file, folder or stream that cannot be used; "" if the error is a bug in pv."""
    if error.filename is not None:
        return f"cannot use {error.filename}: {error.strerror}"
    if error.errno in OUTPUT_ERRORS:
        discard_output()
        return f"cannot write to standard output: {error.strerror}"
    # The working directory was removed, or there is no folder in which temporary files can be written.
    return f"cannot use the working or temporary directory: {error.strerror}" if error.errno == errno.ENOENT else ""


@click.group(cls=_Command, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="pv")
def main() -> None:
    """Test the claims of contracts about training code, and report which claims held and how they were tested.

    Exit codes, worst first: 70 a bug in pv, 3 refused (usage, malformed contract, unusable file), 1 failed or lint
    errors, 2 undecided or nothing measured, 0 passed; 130 interrupted.
    """
