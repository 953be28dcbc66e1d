"""Faulty traces, for mutants that replace a public function or method."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any


def bare_nan(event: Any, context: Any) -> str:
    """Write a NaN loss as Python does, which is not JSON."""
    return json.dumps({"event": event.value, **asdict(context)})


def any_file_replaced(original: Any, self: Any, path: Path, *, force: bool = False) -> None:
    """Let --force replace a file that is not a trace."""
    if force:
        path.unlink(missing_ok=True)
    original(self, path, force=force)


def trace_replaced_without_force(original: Any, self: Any, path: Path, *, force: bool = False) -> None:
    """Replace an older trace although --force was not given."""
    original(self, path, force=True)


def older_trace_emptied_at_once(original: Any, self: Any, path: Path, *, force: bool = False) -> None:
    """Empty an older trace before the run that replaces it has begun."""
    original(self, path, force=force)
    path.write_bytes(b"")
