"""The entry point of the process."""

import io
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any
from unittest import mock

import pytest

from reference_trainer.__main__ import run
from tests.reference_trainer.signalled import AT_ONCE, DEFAULT, begin, child, interrupt


def without(package: str) -> Callable[[], str]:
    """Return the start of the command line where this package is missing."""

    def work() -> str:
        ours = ("reference_trainer.cli", "reference_trainer.con")
        for name in [name for name in sys.modules if name.startswith(ours)]:
            del sys.modules[name]
        sys.modules[package] = None  # as Python marks a module that must not be found
        try:
            run()
        except SystemExit as error:
            return str(error.code)
        return "it went on"

    return work


@pytest.mark.parametrize(
    ("package", "says"),
    [
        ("pydantic", "error: pydantic is not installed: pip install 'pv-contracts[trainer]'"),
        ("click", "ModuleNotFoundError: "),
    ],
)
def test_missing_package_of_the_command_line_is_named(package: str, says: str) -> None:
    """Other import errors are raised."""
    _, answer, _ = child(without(package))
    assert answer.startswith(says)


def test_process_runs_the_command_line_under_its_own_name() -> None:
    def work() -> str:
        begin(signal.SIGINT, DEFAULT)
        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["x.py", "schema", "--help"]), redirect_stdout(said):
            try:
                run()
            except SystemExit as error:
                return f"{error.code} {said.getvalue().splitlines()[0]}"
        return "it went on"

    assert child(work) == (0, "0 Usage: reference-trainer schema [OPTIONS] [trace|settings|metrics]", b"")


class AtImport:
    """Interrupts the import of the command line."""

    def find_spec(self, name: str, *others: Any) -> None:
        if name == "reference_trainer.cli":
            interrupt()


def test_process_sets_its_signal_handlers_before_the_import() -> None:
    def work() -> str:
        begin(signal.SIGINT, DEFAULT)
        sys.modules.pop("reference_trainer.cli", None)
        sys.meta_path.insert(0, AtImport())
        run()
        return "it went on"

    assert child(work) == (130, "", AT_ONCE)
