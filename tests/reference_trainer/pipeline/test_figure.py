"""The figure of runs: its panels, lines, labels and units, and the points that a line keeps."""

import math
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")

from matplotlib.figure import Figure

from reference_trainer.pipeline import figure
from reference_trainer.pipeline.plot import PlottedRun


def run(label: str = "run", points: int = 100, names: tuple[str, ...] = ("loss",)) -> PlottedRun:
    steps = list(range(10, 10 * points + 1, 10))
    return PlottedRun(label, {name: (steps, [1.0 + 1.0 / step for step in steps]) for name in names})


def panels(runs: list[PlottedRun], names: list[str]) -> dict[str, Any]:
    """Return the panels that are drawn, without a warning, by their titles."""
    seen = list[Figure]()
    with mock.patch.object(Figure, "savefig", lambda self, *_, **__: seen.append(self)), warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.draw(runs, names, Path("/dev/null"), format="png")
    return {panel.get_title("left"): panel for panel in seen[0].axes}


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


def test_values_that_are_not_finite_are_crosses_with_a_note() -> None:
    bad = PlottedRun("bad", {"loss": ([1, 2, 3, 4], [2.0, math.nan, 1.0, math.inf])})
    panel = panels([bad], ["loss"])["loss"]
    line, crosses = panel.get_lines()
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([1, 3], [2.0, 1.0])
    assert (list(crosses.get_xdata()), crosses.get_marker(), crosses.get_color()) == ([2, 4], "x", line.get_color())
    assert panel.get_title("right") == "× not finite"
    assert panels([run()], ["loss"])["loss"].get_title("right") == ""


@pytest.mark.parametrize(("count", "peak"), [(2000, 7), (2001, 2000), (9000, 4321)])
@pytest.mark.parametrize("height", [100.0, -100.0])
def test_thinned_points_keep_order_and_extremes(count: int, peak: int, height: float) -> None:
    points = [(step, height if step == peak else float(step % 7)) for step in range(count)]
    kept = figure.thin_out(points)
    assert set(kept) <= set(points) and kept == sorted(set(kept)) and len(kept) <= 2000
    assert points[peak] in kept and (kept == points) == (count <= 2000)
