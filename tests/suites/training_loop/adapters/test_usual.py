"""Parts, numbers and settings of a loop are found by their usual names; where several could be meant, none is."""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from pv.suites.training_loop.adapters.usual import (
    NextTokens,
    Rows,
    copies,
    cosine_rate,
    logged,
    next_tokens,
    number,
    part,
    settings,
)
from pv.suites.training_loop.job import IGNORED, Example, Job
from pv.suites.training_loop.probe import Probe


class Calling:
    """A loop whose step is called by another of its methods."""

    def __init__(self) -> None:
        self.last_loss, self.norm, self.grad_norm = 1.5, 1.0, 2.0

    def train_step(self, window: Any) -> str:
        return self.step(window)

    def step(self, window: Any) -> str:
        return f"a step on {window}"

    def save(self) -> None: ...

    def save_checkpoint(self) -> None: ...


def test_part_is_the_method_that_no_other_with_a_usual_name_calls_and_number_the_only_attribute() -> None:
    update = part(Calling(), "update")
    assert update is not None and update.__name__ == "train_step"
    assert part(Calling(), "save") is part(Calling(), "load") is part(None, "update") is None
    assert number(Calling(), "loss") == 1.5
    assert number(Calling(), "norm") is number(Calling(), "steps") is None


@dataclass
class Config:
    lr: float
    weight_decay: float
    folder: Path
    out_dir: str | None
    epochs: int
    max_steps: int | None
    eval_every: int
    save_interval: int
    decay_lr: bool = False
    optimizer: str = "adam"
    device: str = "cpu"


def test_settings_are_those_of_the_job_as_loops_take_them_with_own_ones(job: Any) -> None:
    task: Job = job(rate=0.25, schedule="linear", optimizer="sgd", epochs=2, max_steps=7, save_every=3)
    values = (task.directory, str(task.directory), 7, 7, 10**9, 3, True, "sgd")
    assert settings(Config, task, folder=task.directory) == Config(0.25, 0.0, *values)
    options = {"lr": 1.0, "device": "meta"}
    assert settings(Config, task, folder=task.directory, **options) == Config(1.0, 0.0, *values, "meta")


def annotated(grad_clip: float, max_norm: float | None) -> tuple[float, float | None]:
    return grad_clip, max_norm


@pytest.mark.parametrize("kind", [lambda grad_clip=1.0, max_norm=None: (grad_clip, max_norm), annotated])
def test_no_clipping_is_an_infinite_limit_where_a_number_is_taken(job: Any, kind: Any) -> None:
    assert settings(kind, job()) == (math.inf, None)
    assert settings(kind, job(clip=2.0)) == (2.0, 2.0)


@dataclass
class Warming:
    decay_lr: bool = True
    warmup_steps: int = 100


def rate_of(step: int, cfg: Warming) -> float:
    return step / cfg.warmup_steps


def defaults() -> Warming:
    return Warming()


@pytest.mark.parametrize("kind", [Warming, defaults])
def test_warmup_that_the_loop_divides_by_is_not_0_and_its_schedule_stays(job: Any, kind: Any) -> None:
    assert settings(kind, job()) == Warming(True, 1)
    assert settings(kind, job(), warmup_steps=7) == Warming(False, 7)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("model_name")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--note", default="none")
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--data-path", type=Path, required=True)
    args = parser.parse_args()
    args.corpus = args.data_path / "corpus.txt"
    if args.lr > 1:
        parser.error("the rate is above 1")
    return args


def test_arguments_of_the_command_line_are_those_of_the_job_and_own_ones(
    job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["pv", "check", "script_adapter:Adapter"])  # not the script's arguments
    arguments = settings(parse_args, job(rate=0.25, batch=3), model_name="m", data_path="data")
    assert arguments.corpus == Path("data/corpus.txt")
    expected = {"model_name": "m", "files": [], "lr": 0.25, "batch_size": 3, "note": "none"}
    assert vars(arguments).items() >= expected.items()


def test_missing_required_arguments_are_named_with_the_call_that_gives_them(job: Any) -> None:
    call = r"call `settings\(parse_args, job, model_name=\.\.\., data_path=\.\.\.\)`"
    with pytest.raises(TypeError, match=call):
        settings(parse_args, job())


def test_error_of_a_parser_does_not_end_the_process(job: Any) -> None:
    with pytest.raises(ValueError, match=r"^the rate is above 1$"):
        settings(parse_args, job(rate=2.0), model_name="m", data_path="data")


def test_cosine_begins_after_the_warmup_and_ends_at_0(job: Any) -> None:
    task: Job = job(rate=1.0, warmup=2, schedule="linear")
    rates = [0.5, 1, 1, 0.853553, 0.5, 0.146447, 0]
    assert [cosine_rate(task, k, 6) for k in range(7)] == pytest.approx(rates, abs=1e-6)
    assert cosine_rate(task, 0, 6, rise=0.25) == 0.25 and cosine_rate(job(rate=1.0), 3, 6) == 1.0


def test_rows_of_a_log_are_those_of_a_report() -> None:
    rows = [
        {"iter": 1, "train_loss": 2.0, "lr": 0.1, "seconds": 3.0, "n": 4},
        {"step": 2, "val_loss": 1.5, "loss": None},
        {"epoch": 1, "val_loss": 1.5},
    ]
    ambiguous = {"step": 3, "loss": 1.0, "train_loss": 2.0}
    logs = [{"step": 1, "loss": 2.0, "rate": 0.1, "n": 4}]
    assert logged([*rows, ambiguous], "n") == {"logs": logs, "evaluations": [(2, 1.5)]}


class Defaults:
    lr = 0.1
    width: int | None = None

    @property
    def learning_rate(self) -> float:
        raise ValueError("the width is not set")


def test_attributes_of_default_settings_are_set_and_properties_are_not(job: Any) -> None:
    result = settings(Defaults, job(rate=0.25))
    assert result.lr == 0.25 and Defaults.lr == 0.1


def parse_all(argv: list[str] | None = None, *, strict: bool = True) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--data", required=True)
    return parser.parse_args(argv) if strict else parser.parse_known_args(args=argv)[0]


def parse_known(argv: Sequence[str] = ("--lr", "3")) -> argparse.Namespace:
    return parse_all([*argv], strict=False)


@pytest.mark.parametrize("parse", [parse_all, parse_known])
def test_function_that_may_be_given_a_command_line_parses_none(job: Any, parse: Any) -> None:
    assert vars(settings(parse, job(rate=0.25), data="rows")) == {"lr": 0.25, "data": "rows"}
    with pytest.raises(TypeError, match=f"call `settings\\({parse.__name__}, job, data=...\\)`"):
        settings(parse, job())


class Overwriting:
    step = 0

    def save_state(self, path: Path, *, note: str = "") -> None:
        self.step += 1
        path.write_text(f"{self.step}{note}")


class Folders:
    step = 4

    def save(self, path: Path) -> Path:
        path.mkdir(exist_ok=True)
        (path / "weights").write_text("4")
        return path


def test_checkpoints_that_are_overwritten_and_folders_are_copied(tmp_path: Path) -> None:
    loop = Overwriting()
    checkpoints = copies(loop)
    loop.save_state(tmp_path / "last")
    loop.save_state(tmp_path / "last", note="!")
    assert {step: path.read_text() for step, path in checkpoints.items()} == {1: "1", 2: "2!"}
    with pytest.raises(ValueError, match="no method with a usual name that saves"):
        copies(Calling())
    loop = Folders()
    checkpoints = copies(loop)
    assert [loop.save(tmp_path / "folder") for _ in range(2)] == 2 * [tmp_path / "folder"]
    assert (checkpoints[4] / "weights").read_text() == "4"


def test_rows_are_drawn_when_they_are_taken(job: Any) -> None:
    example = Example((1, 40, 41), (IGNORED, 40, 41))
    assert list(Rows(job(), [example, example])[1:]) == [{"input_ids": [1, 40, 41], "labels": [IGNORED, 40, 41]}]
    rows = Rows(job(noise=True), [example])
    drawn = [rows[0] for _ in range(30)]
    assert {(ids[0], ids[2]) for ids in (row["input_ids"] for row in drawn)} == {(1, 41)}
    assert len({row["input_ids"][1] for row in drawn}) > 1 and all(row["labels"][1] == 40 for row in drawn)


def test_next_tokens_are_scored_as_the_labels_say() -> None:
    rows = next_tokens([Example((1, 40, 41, 42), (IGNORED, IGNORED, 41, 42))])
    assert rows == [([1, 40, 41], [-1, 41, 42])]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_loss_of_the_model_is_that_of_the_scored_targets(reduction: str) -> None:
    model = NextTokens(Probe(silent=True), reduction=reduction)
    x, y = torch.tensor([[1, 40, 41]]), torch.tensor([[-1, 41, 42]])
    logits, loss = model(x, y)
    assert model(x)[1] is None and loss is not None
    torch.testing.assert_close(loss, cross_entropy(logits[0, 1:], y[0, 1:], reduction=reduction), rtol=0, atol=0)
