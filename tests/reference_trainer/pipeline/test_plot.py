"""`reference-trainer plot`: which runs and metrics it draws, which file it writes, what it refuses."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from reference_trainer.pipeline.plot import MOST_RUNS, PlottedRun, _choose_metrics
from tests.reference_trainer.commands import Ended, command

Make = Callable[..., Path]
KNOWN = "choose from hard_loss, learning_rate, loss, temperature"
PNG, SVG = b"\x89PNG\r\n\x1a\n", b"<?xml"


@pytest.fixture
def make(empty: Path) -> Make:
    """Write the metrics file of a run with these metrics, and return its directory; the working directory is empty."""

    def write(name: str = "run", points: int = 10, names: tuple[str, ...] = ("hard_loss", "loss")) -> Path:
        directory = empty / name
        directory.mkdir(parents=True)
        lines = ""
        for step in range(1, points + 1):
            fields = {"step": step, "epoch": 1, "learning_rate": 0.5 / step, "elapsed_s": 1.0, "tokens": 8}
            metrics = {metric: (place + 0.5) * step for place, metric in enumerate(names)} | {"temperature": 1.0}
            lines += json.dumps({**fields, "metrics": metrics}) + "\n"
        (directory / "metrics.jsonl").write_text(lines)
        return directory

    return write


def plot(*arguments: Any) -> Ended:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    return command("plot", *map(str, arguments))


@pytest.mark.parametrize(("name", "start"), [("a.png", PNG), ("b.svg", SVG)])
def test_file_has_the_format_of_its_suffix(make: Make, name: str, start: bytes) -> None:
    ended = plot(make(), "--out", name)
    output = f"not drawn, because constant: temperature\nwrote {name}\n"
    assert (ended.code, ended.output, ended.complaints) == (0, output, "")
    assert Path(name).read_bytes().startswith(start)
    assert sorted(path.name for path in Path().iterdir()) == [name, "run"]


def test_all_metrics_are_drawn_by_default_loss_and_rate_first_with_paths_for_equal_names(make: Make) -> None:
    make("a/run", names=("hard_loss", "loss", "agreement")), make("b/run", names=("agreement", "odd"))
    asked = list[Any]()

    def draw(runs: Any, names: Any, file: Path, *, format: str) -> None:
        asked.extend([[run.label for run in runs], names])
        file.write_text(format)

    with mock.patch.dict(sys.modules, {"reference_trainer.pipeline.figure": mock.Mock(draw=draw)}):
        assert command("plot", "a/run", "b/run/metrics.jsonl").code == 0
    assert asked == [["a/run", "b/run/metrics.jsonl"], ["loss", "learning_rate", "hard_loss", "agreement", "odd"]]


def points(**values: list[float]) -> PlottedRun:
    return PlottedRun("", {name: ([*range(1, len(series) + 1)], series) for name, series in values.items()})


def test_constant_metrics_and_equal_ones_are_not_drawn_unless_they_are_named() -> None:
    run = points(loss=[2.0, 1.0], soft_loss=[2.0, 1.0], kl=[2.0, 1.0], T=[1.0, 1.0], learning_rate=[0.5, 0.5])
    notes = ("not drawn, because equal to loss: soft_loss, kl", "not drawn, because constant: learning_rate, T")
    assert _choose_metrics((), [run]) == (["loss"], notes)
    assert _choose_metrics(("T", "kl"), [run]) == (["T", "kl"], ())
    other = points(loss=[2.0, 1.0], soft_loss=[2.0, 1.5], T=[2.0, 2.0])
    assert _choose_metrics((), [run, other])[0] == ["loss", "soft_loss", "kl", "T"]
    assert _choose_metrics((), [points(loss=[2.0], T=[1.0])]) == (["loss", "T"], ())


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nowhere"], 1, "cannot read nowhere: No such file or directory"),
        (["cut"], 1, "cut/metrics.jsonl has no points yet; the run has logged no step"),
        (["odd"], 1, "odd/metrics.jsonl:3: Expecting value"),
        (["run", "--out", "a.pdf"], 2, "invalid value 'a.pdf' for --out: expected a name that ends in .png or .svg"),
        (["run", "--metric", "los"], 2, f"unknown metric 'los' (did you mean 'loss'? {KNOWN})"),
        (["run", "--out", "no/a.png"], 1, "cannot write no/a.png: No such file or directory; give another --out"),
        (["run"] * (MOST_RUNS + 1), 2, "invalid number of runs 9: expected 1 to 8"),
    ],
)  # fmt: skip
def test_refusals(make: Make, arguments: list[str], code: int, says: str) -> None:
    make()
    cut = make("cut", points=1) / "metrics.jsonl"
    cut.write_text(cut.read_text()[:-1])  # the only line is incomplete
    (make("odd", points=2) / "metrics.jsonl").open("a").write("nonsense\n")
    ended = plot(*arguments)
    assert (ended.code, ended.complaints.partition(says)[0], ended.complaints.count("\n")) == (code, "error: ", 1)
    assert sorted(path.name for path in Path().iterdir()) == ["cut", "odd", "run"]


def test_existing_file_is_kept_without_force(make: Make) -> None:
    Path("a.png").write_bytes(b"mine")
    refused = plot(make(), "--out", "a.png")
    assert (refused.code, Path("a.png").read_bytes()) == (1, b"mine")
    assert refused.complaints == "error: a.png exists; give another --out, or --force to overwrite it\n"
    assert plot("run", "--out", "a.png", "--force").code == 0
    assert Path("a.png").read_bytes().startswith(PNG)


def test_failure_while_drawing_keeps_the_older_file(make: Make) -> None:
    Path("a.png").write_bytes(b"older")

    def draw(runs: Any, names: Any, file: Path, *, format: str) -> None:
        file.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with mock.patch.dict(sys.modules, {"reference_trainer.pipeline.figure": mock.Mock(draw=draw)}):
        ended = command("plot", str(make()), "--out", "a.png", "--force")
    assert ended.complaints == "error: cannot write a.png: No space left on device; give another --out\n"
    assert Path("a.png").read_bytes() == b"older"
    assert sorted(path.name for path in Path().iterdir()) == ["a.png", "run"]


def test_missing_matplotlib_is_named_with_its_extra(make: Make) -> None:
    """Everything else is checked before."""
    make()
    hidden = {name: module for name, module in sys.modules.items() if "pipeline.figure" not in name}
    with mock.patch.dict(sys.modules, {**hidden, "matplotlib": None}, clear=True):
        ended = command("plot", "run")
        assert command("plot", "run", "--metric", "los").code == 2
    assert ended.code == 1
    assert ended.complaints == "error: matplotlib is not installed: pip install 'pv-contracts[plot]'\n"
