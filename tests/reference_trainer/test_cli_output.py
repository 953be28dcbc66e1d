"""What the command line prints: help, version, schemas, and the lines of a run whose standard output is lost."""

import pytest

import reference_trainer
from reference_trainer.config import settings as config
from reference_trainer.config.kinds import kind_of
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


def test_help_lists_every_setting_with_its_default_in_the_order_of_declaration() -> None:
    shown, places = " ".join(command("distill", "--help").said.split()), []
    for name, field in config.Settings.model_fields.items():
        default = "" if field.default in (None, False) else f" [default: {field.default}]"
        flag = f" --{name.replace('_', '-')} {kind_of(field).metavar}".rstrip()
        assert flag in shown and " ".join(f"{field.description}{default}".split()) in shown, name
        places.append(shown.index(flag))
    assert places == sorted(places)
