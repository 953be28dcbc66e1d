"""Wrong versions of public functions: the faults that the contract `event-log` declares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def older_lines_lost(original: Any, self: Any, path: Any, **hooks: Any) -> None:
    """Empty the file of an earlier attempt."""
    Path(path).write_bytes(b"")
    original(self, path, **hooks)


def events_not_chosen(original: Any, self: Any, path: Any, **hooks: Any) -> None:
    """Write the default events only."""
    original(self, path)


def bare_nan(original: Any, self: Any, line: str) -> Any:
    """Write NaN as Python does."""
    return original(self, json.dumps(json.loads(line, parse_constant=float)).replace('"nan"', "NaN"))


def one_file_for_all_ranks(original: Any, self: Any, context: Any) -> None:
    """Let every rank write to one file."""
    from dataclasses import replace

    original(self, replace(context, world_size=1))


def opened_later(original: Any, self: Any, path: Any, **hooks: Any) -> None:
    """Find out in the run that the file cannot be written."""
    from reference_trainer.errors import TrainerError

    try:
        original(self, path, **hooks)
    except TrainerError:
        return


def every_rank_writes(original: Any, self: Any, event: Any, context: Any) -> None:
    """Take every rank for the first."""
    from dataclasses import replace

    original(self, event, replace(context, rank=0))


def not_settled(self: Any) -> None:
    """Save at once."""
