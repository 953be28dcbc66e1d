"""The figure of runs: its panels, lines, labels and units, and the points that a line keeps."""

import math
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")

from matplotlib.figure import Figure

from reference_trainer.pipeline import figure
from reference_trainer.pipeline.plot import Run

Points = dict[str, tuple[list[int], list[float]]]


def run(label: str = "run", points: int = 100, names: tuple[str, ...] = ("loss",)) -> Run:
    steps = list(range(10, 10 * points + 1, 10))
    return Run(label, {name: (steps, [1.0 + 1.0 / step for step in steps]) for name in names})


def drawn(runs: list[Run], names: list[str], *, written: bool = False) -> Figure:
    """Return the figure that was drawn; assert that this, and its writing if it is written, gives no warning."""
    seen = list[Figure]()
    save = Figure.savefig

    def keep(self: Figure, *arguments: Any, **named: Any) -> None:
        seen.append(self)
        if written:
            save(self, *arguments, **named)

    with mock.patch.object(Figure, "savefig", keep), warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.draw(runs, names, Path("/dev/null"), format="png")
    return seen[0]


def panels(runs: list[Run], names: list[str]) -> dict[str, Any]:
    return {panel.get_title("left"): panel for panel in drawn(runs, names).axes}


def test_each_metric_has_a_panel_with_its_unit() -> None:
    names = ["loss", "learning_rate", "student_perplexity", "agreement", "tokens_per_s", "teacher_entropy", "own"]
    seen = panels([run(names=tuple(names))], names)
    assert {name: panel.get_ylabel() for name, panel in seen.items()} == {
        "loss": "nats per token",
        "learning_rate": "learning rate",
        "student_perplexity": "perplexity",
        "agreement": "fraction of tokens",
        "tokens_per_s": "tokens per second",
        "teacher_entropy": "nats per token",
        "own": "own",
    }


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 13])
def test_lowest_panel_of_each_column_names_the_steps(count: int) -> None:
    names = [f"metric {place}" for place in range(count)]
    axes = drawn([run(names=tuple(names), points=2)], names).axes
    assert len(axes) == count
    lowest = {panel.get_position().x0: panel.get_position().y0 for panel in axes}
    for panel in axes:
        lowest[panel.get_position().x0] = min(panel.get_position().y0, lowest[panel.get_position().x0])
    for panel in axes:
        is_lowest = panel.get_position().y0 == lowest[panel.get_position().x0]
        assert panel.get_xlabel() == ("optimizer step" if is_lowest else "")


@pytest.mark.parametrize("count", [1, 3, 8])
def test_runs_differ_in_colour_and_neighbours_in_style_too(count: int) -> None:
    runs = [run(f"run {place}", points=50 + place) for place in range(count)]
    lines = panels(runs, ["loss"])["loss"].get_lines()
    assert [len(line.get_xdata()) for line in lines] == [50 + place for place in range(count)]
    assert len({line.get_color() for line in lines}) == count
    assert all(one.get_linestyle() != other.get_linestyle() for one, other in pairwise(lines))


@pytest.mark.parametrize("label", ["plain", "_hidden", "a$b$c", "50 % {x}", "a" * 60])
def test_legend_has_the_labels_as_they_are_and_the_looks_of_the_lines(label: str) -> None:
    runs = [run("first"), run(label)]
    seen = drawn(runs, ["loss"], written=True)
    (legend,) = seen.legends
    assert [text.get_text() for text in legend.get_texts()] == ["first", label]
    looks = [[(x.get_color(), x.get_linestyle()) for x in lines] for lines in (legend.get_lines(), seen.axes[0].lines)]
    assert looks[0] == looks[1]


def test_run_without_a_metric_keeps_its_look_in_other_panels() -> None:
    runs = [run("one", names=("kl",)), run("two", names=("loss", "kl"))]
    seen = panels(runs, ["loss", "kl"])
    (alone,) = seen["loss"].get_lines()
    assert alone.get_color() == seen["kl"].get_lines()[1].get_color() != seen["kl"].get_lines()[0].get_color()


@pytest.mark.parametrize(("points", "marked"), [(1, True), (10, True), (200, False)])
def test_few_points_are_marked(points: int, marked: bool) -> None:
    (line,) = panels([run(points=points)], ["loss"])["loss"].get_lines()
    assert (line.get_marker() == "o") == marked


def test_values_that_are_not_finite_are_crosses_with_a_note() -> None:
    bad = Run("bad", {"loss": ([1, 2, 3, 4], [2.0, math.nan, 1.0, math.inf])})
    panel = panels([bad], ["loss"])["loss"]
    line, crosses = panel.get_lines()
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([1, 3], [2.0, 1.0])
    assert (list(crosses.get_xdata()), crosses.get_marker(), crosses.get_color()) == ([2, 4], "x", line.get_color())
    assert panel.get_title("right") == "× not finite"
    assert panels([run()], ["loss"])["loss"].get_title("right") == ""


def test_run_of_nan_alone_is_drawn() -> None:
    bad = Run("bad", {"loss": ([1, 2], [math.nan, math.nan])})
    assert len(panels([bad], ["loss"])["loss"].get_lines()) == 2


def test_eight_runs_of_many_points_are_drawn_in_seconds() -> None:
    long = run(points=100_000)
    started = time.process_time()
    lines = drawn([Run(f"run {place}", long.points) for place in range(8)], ["loss"], written=True).axes[0].get_lines()
    assert time.process_time() - started < 60
    assert all(len(line.get_xdata()) <= 2000 for line in lines)


@settings(deadline=None, max_examples=30)
@given(count=st.integers(0, 9000), peak=st.integers(0, 8999), height=st.sampled_from([100.0, -100.0]))
def test_thinned_points_keep_order_and_extremes(count: int, peak: int, height: float) -> None:
    points = [(step, height if step == peak else float(step % 7)) for step in range(count)]
    kept = figure.thinned(points)
    assert set(kept) <= set(points) and kept == sorted(set(kept)) and len(kept) <= 2000
    assert kept == points or count > 2000
    assert peak >= count or points[peak] in kept
    values = [[value for _, value in each] for each in (points, kept)]
    assert not points or (min(values[0]), max(values[0])) == (min(values[1]), max(values[1]))
