"""The options of the commands, in the order of the help texts."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pv.report import COMPARISON_FORMATS, FORMATS, formats

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Command = Callable[..., object]
Option = Callable[[Command], Command]


def add_options(*options: Option) -> Option:
    """Return a decorator that adds arguments and options to a command."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class ReportFormat(click.Choice[str]):
    """A report format. Formats of other packages are looked up only if one is named, so that `--help` stays fast."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices and value in formats():
            return str(value)
        return super().convert(value, param, ctx)


def format_option(names: Sequence[str], text: str = "Format on standard output.") -> Option:
    """Return the option `--format`, which takes one of `names` (default: the first); `text` is its help text.

    If `names` are all report formats, the option also takes the formats of other packages.
    """
    choice = ReportFormat(names) if names == tuple(FORMATS) else click.Choice(names)
    return click.option("--format", "form", type=choice, default=names[0], show_default=True, help=text)


def output_option(text: str) -> Option:
    """Return the option `--output`; `text` is its help text."""
    return click.option("--output", "outputs", multiple=True, metavar="FORMAT=FILE", help=text)


def _id_option(flag: str, noun: str, *name: str) -> Option:
    """Return an option `flag` that selects objects by id; `noun` names the objects, `name` is the Python parameter."""
    text = f"Run only {noun} whose id matches (a glob pattern)."
    return click.option(flag, *name, multiple=True, metavar="ID", help=text)


def _seed_option(noun: str) -> Option:
    return click.option("--seed", type=int, default=0, show_default=True, help=f"Seed of the {noun}.")


def _complete_name(_: click.Context, __: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the completions of a word: paths, and the ids of the project that begin with the word."""
    # The item of type "file" comes first, because bash's completion script discards the items before it.
    from click.shell_completion import CompletionItem

    from pv.commands.naming import ids
    from pv.errors import PvError

    try:
        items = [CompletionItem(id_, help=text) for id_, text in ids().items() if id_.startswith(incomplete)]
    except PvError:
        items = []
    return [CompletionItem(incomplete, type="file"), *items]


PATHS = click.argument(
    "paths", nargs=-1, metavar="[PATH|ID]...", type=click.Path(path_type=Path), shell_complete=_complete_name
)
NAME = click.argument("name", metavar="CODE|ID", shell_complete=_complete_name)
VERBOSE = click.option("-v", "--verbose", is_flag=True, help="Show more about each contract.")
SUBJECT = click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="CONTRACT=TARGET",
    help="Use TARGET (module or module:attribute) instead of CONTRACT's own subject.",
)
_JOBS = click.option(
    "--jobs", type=click.IntRange(1), help="Number of workers that compute at a time (default: cores + 1)."
)
_EXAMPLES = click.option(
    "--examples", type=click.IntRange(1), help="Number of examples per falsifier (default: from the contract)."
)
SPAWN = click.option("--spawn", is_flag=True, help="Start every worker in a new interpreter (slow; for debugging).")

REPLAY = click.option(
    "--replay",
    default="",
    metavar="EXAMPLE",
    help="Replay one example: VERSION:BLOB as printed, JSON arguments (taken as they are), or @FILE.",
)


def baseline_options(fail_on: str) -> Option:
    """Return the options `--baseline` and `--fail-on`; `fail_on` is the default of `--fail-on`."""
    return add_options(
        click.option(
            "--baseline",
            metavar="FILE|REF",
            help="Compare with a JSON report, or with the contracts at the merge base of HEAD and a branch or commit.",
        ),
        click.option(
            "--fail-on",
            type=click.Choice(["weaker", "never"]),
            default=fail_on,
            show_default=True,
            help="Exit with 1 if a contract asks for less than the base (weaker), or only show it (never).",
        ),
    )


VALIDATE = add_options(
    PATHS,
    _id_option("--only", "falsifiers and harnesses"),
    _id_option("--contract", "contracts", "contracts"),
    click.option(
        "--device", "devices", multiple=True, metavar="DEVICE", help="Run only on this device (cpu, cuda; repeatable)."
    ),
    click.option(
        "--require", multiple=True, metavar="DEVICE", help="Also require recorded evidence for this device (cuda)."
    ),
    SUBJECT,
    _JOBS,
    click.option("--fail-fast", is_flag=True, help="Stop at the first failure."),
    click.option(
        "--shard",
        default="",
        metavar="K/N",
        help="Run only part K of N; `pv report` merges the reports.",
    ),
    _EXAMPLES,
    _seed_option("examples"),
    REPLAY,
    click.option("--record", is_flag=True, help="Write proofs and device results to evidence/."),
    click.option("-v", "--verbose", is_flag=True, help="Show all figures of every contract, passing ones included."),
    click.option(
        "--cache/--no-cache",
        "reuse",
        default=True,
        help="Reuse results of earlier validations whose dependencies have not changed, or run everything again.",
    ),
    baseline_options("weaker"),
    format_option(tuple(FORMATS), "Format of the report on standard output."),
    output_option("Also write a report to a file."),
    SPAWN,
    click.option(
        "--no-mutants",
        "mutants",
        is_flag=True,
        flag_value=False,
        default=True,
        help="Try no mutants; `pv report` then counts claims that hold as undecided, unless --partial is given.",
    ),
    click.option("--dry-run", is_flag=True, help="Build and list the tasks that would run, but run none."),
)

CHECK = add_options(
    click.argument("subject", metavar="[SUBJECT | -- COMMAND...]", required=False),
    click.option("--steps", type=click.IntRange(1), metavar="N", help="End the command after N optimizer steps."),
    click.option(
        "--trace",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Keep the traces of the command in DIR; without a command, judge the traces in DIR.",
    ),
    click.option("--hints", is_flag=True, help="Also show probable mistakes that correct scripts may make on purpose."),
    click.option(
        "--sample",
        type=click.IntRange(min=1),
        metavar="K",
        help="Record losses only in the first steps and in every K-th one, which makes a long run cheaper.",
    ),
    click.option(
        "--cut",
        multiple=True,
        type=click.IntRange(1),
        metavar="K",
        help="Kill the command after optimizer step K, resume it, and compare it with two uncut runs; may be repeated.",
    ),
    click.option(
        "--resume", default="", metavar="ARGS", help="Arguments that resume the command; {out} is its folder."
    ),
    click.option("--in-save", is_flag=True, help="Also kill a run inside the first save at or after step K."),
    click.option(
        "--extend", default="", metavar="ARGS", help="Resume the ended run with arguments that make it longer."
    ),
    click.option(
        "--against", default="", metavar="COMMAND", help="Compare the examples of each step with a second command."
    ),
    click.option("--keep-compile", is_flag=True, help="Leave torch.compile on; compiled code is not observed."),
    click.option("--no-probes", is_flag=True, help="Run no probes of the model in a copy of the process."),
    click.option("--suite", default="training-loop", show_default=True, metavar="NAME", help="Use this suite."),
    click.option(
        "--only", multiple=True, metavar="ID", help="Run only claims whose id (a glob pattern) or topic (GRAD) matches."
    ),
    _JOBS,
    click.option("--fail-fast", is_flag=True, help="Stop at the first failure."),
    _seed_option("examples"),
    REPLAY,
    click.option(
        "-v",
        "--verbose",
        is_flag=True,
        help="Also list the claims that held or were not reached, with the reason, and the first steps.",
    ),
    format_option(tuple(FORMATS), "Format of the report on standard output."),
    output_option("Also write a report to a file."),
    SPAWN,
)

COMPARE = add_options(
    click.argument("contract", shell_complete=_complete_name),
    PATHS,
    click.option(
        "--subject",
        "subjects",
        multiple=True,
        metavar="SUBJECT",
        help=(
            "Compare this subject: a declared name, a module or module:attribute (default: all declared and its own)."
        ),
    ),
    _id_option("--only", "falsifiers"),
    _JOBS,
    _EXAMPLES,
    _seed_option("examples"),
    click.option(
        "--strict", is_flag=True, help="Exit with 1 if any subject is falsified, not only the contract's own."
    ),
    format_option(COMPARISON_FORMATS, "Format of the comparison on standard output."),
    output_option("Also write the comparison to a file."),
    SPAWN,
)

MUTATE = add_options(
    click.argument("names", nargs=-1, metavar="[PATH|ID]...", shell_complete=_complete_name),
    click.option(
        "--path",
        "paths",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Read contracts from here instead of the project's.",
    ),
    click.option("--sample", type=click.IntRange(1), help="Try a random sample of this many mutants."),
    _seed_option("sample"),
    click.option("--wide", "widely", is_flag=True, help="Also mutate modules that the subjects import."),
    click.option(
        "--module",
        "modules",
        multiple=True,
        metavar="MODULE",
        help="Mutate only modules whose name matches (a glob pattern).",
    ),
    _JOBS,
    click.option("--record", is_flag=True, help="Write the mutation score of each contract to evidence/."),
    click.option("--fresh", is_flag=True, help="Ignore cached results."),
    format_option(("text", "json")),
    SPAWN,
)
