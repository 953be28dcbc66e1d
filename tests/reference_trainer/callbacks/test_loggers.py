"""Metrics of a run: scalars read back by TensorBoard's own reader, and calls of fakes of wandb and mlflow."""

import errno
import io
import math
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from falsifiers.observers.events import context
from reference_trainer import Lines, Settings, distill, read_metrics
from reference_trainer.callbacks.loggers import Logger, TensorBoardCallback, WandbCallback
from reference_trainer.callbacks.trace import TraceCallback
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
    for logger in (callback, other):
        logger.on_train_end(context(20, metrics={}))


def test_resumed_run_replaces_scalars_that_are_logged_again(directory: Path) -> None:
    """The name of an event file has the time in seconds, by which readers sort."""
    for first, loss in ((0, 4.0), (10, 2.0)):
        callback = TensorBoardCallback(directory)
        with mock.patch("time.time", return_value=1e9 + first):
            callback.on_train_begin(context(first, metrics={}))
        for step in (10, 20, 30):
            if step > first:
                callback.on_step_end(context(step, metrics={"loss": loss}))
        callback.on_train_end(context(30, metrics={}))
    assert scalars(directory)["loss"] == [(10, 4.0), (20, 2.0), (30, 2.0)]


def test_directory_that_cannot_be_created_is_refused(directory: Path) -> None:
    directory.parent.write_text("a file")
    with pytest.raises(OutputError, match=f"^cannot write {directory}: .*; give another directory$"):
        TensorBoardCallback(directory).on_train_begin(context(0, metrics={}))


def test_missing_package_is_named_with_its_extra(tmp_path: Path) -> None:
    missing: dict[str, Any] = {name: mod for name, mod in sys.modules.items() if "torch.utils.tensorboard" not in name}
    says = r"tensorboard is not installed: pip install 'pv-contracts\[tensorboard\]'"
    without = mock.patch.dict(sys.modules, {**missing, "tensorboard": None}, clear=True)
    with without, pytest.raises(PackageError, match=f"^{says}$"):
        TensorBoardCallback(tmp_path)


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_missing_package_is_refused_before_the_run(tmp_path: Path, name: str) -> None:
    with (
        mock.patch.dict(sys.modules, {name: None}),
        pytest.raises(PackageError, match=f"^{name} is not installed: pip install {name}$"),
    ):
        distill(Settings(log_to=name, out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


class Calls(ModuleType):
    """A fake of the documented functions of wandb and mlflow that are called; `seen` has the calls."""

    def __init__(self) -> None:
        super().__init__("fake")
        self.seen: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def _note(self, name: str, *args: Any, **options: Any) -> None:
        self.seen.append((name, args, options))

    def init(self, *, group: str, config: dict[str, Any], resume: str) -> Any:
        self._note("init", group=group, config=config, resume=resume)
        return SimpleNamespace(log=partial(self._note, "log"), finish=partial(self._note, "finish"))

    def start_run(self, *, run_name: str) -> None:
        self._note("start_run", run_name=run_name)

    def log_params(self, params: dict[str, Any]) -> None:
        self._note("log_params", params)

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self._note("log", metrics, step=step)

    def end_run(self) -> None:
        self._note("finish")


def test_run_logs_to_each_logger_once_on_rank_0(directory: Path, tmp_path: Path) -> None:
    """Names may repeat. Values equal metrics.jsonl, and settings equal the settings of the run."""
    out = tmp_path / "out"
    shape: dict[str, Any] = {
        "length": 16,
        "batch_size": 2,
        "width": 16,
        "data_share": 0.01,
        "max_steps": 4,
        "log_every": 2,
    }
    settings = Settings(**shape, eval_every=4, save_every=0, out=out, log_to="wandb,tensorboard,mlflow,wandb")
    wandb, mlflow = Calls(), Calls()
    with mock.patch.dict(sys.modules, {"wandb": wandb, "mlflow": mlflow}):
        distill(settings, lines=Lines(io.StringIO()))
    lines = read_metrics(out / "metrics.jsonl")
    expected = [(line.step, {"learning_rate": line.learning_rate, **line.metrics}) for line in lines]
    assert [step for step, _ in expected] == [2, 4] and "eval/hard_loss" in expected[1][1]
    for fake, begin in ((wandb, ["init"]), (mlflow, ["start_run", "log_params"])):
        assert [name for name, _, _ in fake.seen] == [*begin, "log", "log", "finish"]
        logged = [(options["step"], values) for name, (values, *_), options in fake.seen[len(begin) : -1]]
        assert logged == expected
    assert wandb.seen[0][2]["config"] == settings.json_values() and wandb.seen[0][2]["group"] == "out"
    assert mlflow.seen[0][2] == {"run_name": "out"} and mlflow.seen[1][1][0]["max_steps"] == 4
    read = scalars(out / "tensorboard")
    assert {name: dict(values)[4] for name, values in read.items()} == pytest.approx(expected[1][1])
    other = WandbCallback.__new__(WandbCallback)
    Logger.__init__(other)
    for hook in (other.on_train_begin, other.on_step_end, other.on_train_end):  # it has no module that it could call
        hook(context(2, metrics={"loss": 1.0}, rank=1, world_size=2))


def test_trace_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace").touch()
    failure = mock.patch.object(Path, "open", side_effect=PermissionError(errno.EACCES, "Permission denied"))
    with failure, pytest.raises(OutputError, match="trace: Permission denied; give another --trace"):
        TraceCallback(tmp_path / "trace", force=True)
