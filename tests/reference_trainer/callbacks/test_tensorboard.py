"""Scalars of a run, read back by TensorBoard's own reader."""

import math
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from falsifiers.observers.events import context
from reference_trainer.callbacks.tensorboard import TensorBoardCallback
from reference_trainer.errors import OutputError, PackageError

Scalars = dict[str, list[tuple[int, float]]]


def scalars(directory: Path) -> Scalars:
    """Return steps and values by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    read.Reload()
    return {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    return tmp_path / "events" / "run"


def test_scalars_of_rank_0_are_in_the_file_at_their_steps_before_the_run_ends(directory: Path) -> None:
    """A killed run keeps the scalars that were logged."""
    callback, other = TensorBoardCallback(directory), TensorBoardCallback(directory)
    callback.on_train_begin(context(0, metrics={}, learning_rate=None))
    callback.on_step_end(context(10, metrics={"loss": math.inf, "student_perplexity": 1e6}))
    callback.on_step_end(context(15, metrics={}, validation_metrics={"eval/hard_loss": 4.0}))
    callback.on_step_end(context(20, metrics={"loss": 1.25}, learning_rate=0.25))
    other.on_step_end(context(20, metrics={"loss": 9.0}, rank=1, world_size=2))
    assert scalars(directory) == {
        "learning_rate": [(10, 0.5), (15, 0.5), (20, 0.25)],
        "loss": [(10, math.inf), (20, 1.25)],
        "student_perplexity": [(10, 1e6)],
        "eval/hard_loss": [(15, 4.0)],
    }
    for each in (callback, other):
        each.on_train_end(context(20, metrics={}))


def test_directory_that_cannot_be_created_is_refused(directory: Path) -> None:
    directory.parent.write_text("a file")
    with pytest.raises(OutputError, match=f"^cannot write {directory}: .*; give another directory$"):
        TensorBoardCallback(directory)


def test_missing_package_is_named_with_its_extra(tmp_path: Path) -> None:
    missing: dict[str, Any] = {name: mod for name, mod in sys.modules.items() if "torch.utils.tensorboard" not in name}
    says = r"tensorboard is not installed: pip install 'pv-contracts\[tensorboard\]'"
    without = mock.patch.dict(sys.modules, {**missing, "tensorboard": None}, clear=True)
    with without, pytest.raises(PackageError, match=f"^{says}$"):
        TensorBoardCallback(tmp_path)
