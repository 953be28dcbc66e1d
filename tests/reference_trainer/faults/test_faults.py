"""A few of the faults of `campaign`, and the order of operations that it relies on.

    python -m tests.reference_trainer.faults.campaign

injects all of them.
"""

from pathlib import Path

import pytest

from tests.reference_trainer.faults import campaign, runs
from tests.reference_trainer.faults.runs import Straight
from tests.reference_trainer.forked import in_child

EVERY_FAULT_OF = 45
SAVE = [
    ("write", "P/rank-00000.safetensors"),
    ("fsync", "P/rank-00000.safetensors"),
    ("write", "P/manifest.json"),
    ("fsync", "P/manifest.json"),
    ("fsync", "P"),
    ("rename", "P"),
    ("fsync", "checkpoints"),
]
"""P is the directory of a checkpoint that is not published yet."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


def test_runs_end_alike_after_some_faults_of_every_kind() -> None:
    """In a child, because a patched `open` would stay."""
    assert in_child(lambda: _failures(EVERY_FAULT_OF)) == 0


def _failures(every: int) -> int:
    table, complaints = campaign.carried_out(every)
    assert sum(count for count, _ in table.values()) >= 15, table
    return len(complaints)


def test_checkpoint_is_written_synced_and_renamed_in_this_order(folder: Path) -> None:
    straight: Straight = runs.straight(folder)
    partial = "checkpoints/.student-step5.partial"
    seen = [
        (kind, path.replace(partial, "P"))
        for (kind, path), saved in zip(straight.operations, straight.saved, strict=True)
        if saved in ([], [5]) and kind in ("write", "fsync", "rename") and not path.startswith("metrics")
    ]
    assert seen[: len(SAVE)] == SAVE
    assert straight.saved[-1] == [25, 30]
    writer = [
        (kind, saved)
        for (kind, path), saved in zip(straight.operations, straight.saved, strict=True)
        if path.startswith("checkpoints")
    ]
    steps = [writer[number + 1][1] for number, (kind, _) in enumerate(writer) if kind == "rename"]
    rotated = [[15, 20], [15, 20, 25], [20, 25], [20, 25, 30], [25, 30]]
    assert steps == [[5], [5, 10], [5, 10, 15], [10, 15], [10, 15, 20], *rotated]
