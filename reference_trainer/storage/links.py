"""Links to the latest and the best checkpoint. They are for people: nothing in this package reads them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from reference_trainer.storage.retention import checkpoint_name

__all__ = ["link_checkpoints"]


def link_checkpoints(directory: Path, run_id: str, *, latest: int | None, best: int | None) -> None:
    """Let the relative links `{run_id}-latest` and `{run_id}-best` refer to these steps.

    A link whose step is None, or has no checkpoint in `directory`, is removed.

    Failure is ignored, as on a file system without links: the manifests say the same.
    """
    for name, step in (("latest", latest), ("best", best)):
        target = None if step is None else checkpoint_name(run_id, step)
        there = target is not None and (directory / target).is_dir()
        _link(directory / f"{run_id}-{name}", target if there else None)


def _link(link: Path, target: str | None) -> None:
    temporary = link.with_name(f".{link.name}.{os.getpid()}.partial")
    with suppress(OSError):
        temporary.unlink(missing_ok=True)
        if target is not None:
            temporary.symlink_to(target)
            temporary.replace(link)
        elif link.is_symlink():
            link.unlink()
    with suppress(OSError):
        temporary.unlink()
