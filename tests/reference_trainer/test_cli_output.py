"""What the command line prints: help, version, schemas, and the lines of a run whose standard output is lost."""

import itertools

import pytest

import reference_trainer
from reference_trainer.config import settings as config
from reference_trainer.config.kinds import kind_of
from reference_trainer.training import trace
from tests.reference_trainer.commands import Ended, Failing, command, distilling, result


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("number", [5, 28, 32])
def test_run_succeeds_without_standard_output(number: int, closed: bool) -> None:
    lost = Failing(OSError(number, "lost"))
    ended = distilling(lambda settings, *, lines: result(), out=lost, closed=closed)
    (line,) = ended.complaints.splitlines()
    assert ended.code == 0 and line.startswith("standard output failed (")


def test_version_names_program_and_version() -> None:
    expected = f"reference-trainer, version {reference_trainer.__version__}\n"
    assert command("--version") == Ended(0, expected, "")


@pytest.mark.parametrize(
    ("name", "flag"), [*itertools.product(("", "distill", "evaluate", "gradcheck", "schema"), ("-h", "--help"))]
)
def test_help_of_every_command_begins_with_its_usage(name: str, flag: str) -> None:
    ended = command(*name.split(), flag)
    assert ended.code == 0 and ended.said.startswith(f"Usage: reference-trainer {name} ".replace("  ", " "))


@pytest.mark.parametrize("name", ["distil", "", "schema x"])
def test_usage_error_prints_the_usage(name: str) -> None:
    ended = command(*name.split())
    assert ended.code == 2 and "Usage: reference-trainer" in ended.complaints


def test_help_lists_every_setting_with_its_default_in_the_order_of_declaration() -> None:
    shown, places = " ".join(command("distill", "--help").said.split()), []
    for name, field in config.Settings.model_fields.items():
        default = "" if field.default in (None, False) else f" [default: {field.default}]"
        flag = f" --{name.replace('_', '-')} {kind_of(field).metavar}".rstrip()
        assert flag in shown and " ".join(f"{field.description}{default}".split()) in shown, name
        places.append(shown.index(flag))
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("arguments", "text"), [([], trace.schema()), (["trace"], trace.schema()), (["settings"], config.schema())]
)
def test_schema_is_printed_byte_for_byte(arguments: list[str], text: str) -> None:
    assert command("schema", *arguments) == Ended(0, text, "")
