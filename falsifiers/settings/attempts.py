"""Attempts to give settings: their origins, the settings of a run, and the messages of refusals."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from falsifiers.distill_smoke.cases import Place, invoked
from falsifiers.settings.cases import variables
from reference_trainer.errors import SettingError


@contextmanager
def toml_file(text: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "settings.toml"
        path.write_text(text, encoding="utf-8")
        yield path


def origins_of(name: str) -> list[str]:
    """Return the origins of a setting, in order of precedence."""
    return ["flag", *variables(name), "file"]


def started(subject: Any, where: Place, *arguments: str, **environment: str) -> tuple[list[Any], Any]:
    """Return the settings of the runs that the command line starts, and how it ended; a run only records them."""
    runs: list[Any] = []

    def run(settings: Any, **rest: Any) -> None:
        runs.append(settings)
        raise SystemExit(0)

    return runs, invoked(subject, where, *arguments, run=run, **environment)


def refusal(what: str, function: Callable[..., Any], *arguments: Any, **settings: Any) -> str:
    """Return the message of the `SettingError` that a call has to raise."""
    try:
        accepted = function(*arguments, **settings)
    except SettingError as error:
        return str(error)
    raise AssertionError(f"{what} is accepted: {accepted}")


def assert_named(message: str, *parts: str) -> None:
    """The message has these names and values."""
    for part in parts:
        assert part in message, f"the refusal {message[:300]!r} does not name {part!r}"
