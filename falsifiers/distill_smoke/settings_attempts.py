"""Attempts to give settings: their origins, a run that records them, and the messages of refusals."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from falsifiers.distill_smoke.settings_cases import variables


@contextmanager
def toml_file(text: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "settings.toml"
        path.write_text(text, encoding="utf-8")
        yield path


def origins_of(name: str) -> list[str]:
    """Return the origins of a setting, in order of precedence."""
    return ["flag", *variables(name), "file"]


@contextmanager
def noting() -> Iterator[list[Any]]:
    """Replace the run by one that records its settings."""
    noted: list[Any] = []

    def run(settings: Any, **rest: Any) -> None:
        noted.append(settings)
        raise SystemExit(0)

    with mock.patch.object(importlib.import_module("reference_trainer.pipeline.distill"), "distill", run):
        yield noted


def refusal(subject: Any, what: str, function: Callable[..., Any], *arguments: Any, **settings: Any) -> str:
    """Return the message of the `SettingError` that a call has to raise."""
    try:
        accepted = function(*arguments, **settings)
    except subject.SettingError as error:
        return str(error)
    raise AssertionError(f"{what} is accepted: {accepted}")


def assert_said(message: str, *parts: str) -> None:
    for part in parts:
        assert part in message, f"the refusal {message[:300]!r} doesn't say {part!r}"


def shown(value: Any) -> str:
    """Return the start of a value as messages show it; long values may be cut off."""
    text = repr(value)
    return text if len(text) < 60 else text[:40]
