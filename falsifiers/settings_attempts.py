"""Settings that are tried out: where one may stand, a run that only notes them, and what a refusal says."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from falsifiers.settings_cases import variables


@contextmanager
def toml_file(text: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "settings.toml"
        path.write_text(text, encoding="utf-8")
        yield path


def origins_of(name: str) -> list[str]:
    """Where a setting may come from, what counts most first."""
    return ["flag", *variables(name), "file"]


@contextmanager
def noting() -> Iterator[list[Any]]:
    """A run that only notes the settings that it was started with."""
    noted: list[Any] = []

    def run(settings: Any, **rest: Any) -> None:
        noted.append(settings)
        raise SystemExit(0)

    with mock.patch.object(importlib.import_module("reference_trainer.distill"), "distill", run):
        yield noted


def refusal(subject: Any, what: str, function: Callable[..., Any], *arguments: Any, **settings: Any) -> str:
    """What a `SettingError` says of a call that has to be refused."""
    try:
        accepted = function(*arguments, **settings)
    except subject.SettingError as error:
        return str(error)
    raise AssertionError(f"{what} is accepted: {accepted}")


def assert_said(message: str, *parts: str) -> None:
    for part in parts:
        assert part in message, f"the refusal {message[:300]!r} doesn't say {part!r}"


def shown(value: Any) -> str:
    """The beginning of a value as a message shows it; a very long one may be cut off."""
    text = repr(value)
    return text if len(text) < 60 else text[:40]
