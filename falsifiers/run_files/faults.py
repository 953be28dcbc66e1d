"""Faulty files and manifests of runs, for mutants that replace a public function or method."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def config_written_at_the_start(original: Any, path: Path, **rest: Any) -> Any:
    """Write a file when the run begins."""

    @contextmanager
    def claimed() -> Iterator[Path]:
        with original(path, **rest) as directory:
            (directory / "config.json").write_text("{}")
            yield directory

    return claimed()


def smoke_run_creates_its_directory(original: Any, path: Path, **rest: Any) -> None:
    """Create the directory that a smoke run never writes into."""
    original(path, **rest)
    path.mkdir(parents=True, exist_ok=True)


def smoke_run_not_refused(path: Path, **rest: Any) -> None:
    """Accept a directory that the full run would refuse."""


def default_settings_left_out(
    original: Any, decoder: Any, directory: Path, manifest: dict[str, Any], **rest: Any
) -> None:
    """Leave settings with their default value out of the manifest, so a later default changes their meaning."""
    from reference_trainer import Settings

    settings, fields = manifest.get("settings", {}), Settings.model_fields
    given = {name: value for name, value in settings.items() if value != fields[name].default}
    original(decoder, directory, {**manifest, "settings": given} if settings else manifest, **rest)


def nothing_needed(tensors: Any) -> int:
    """Return no bytes for a checkpoint."""
    return 0
