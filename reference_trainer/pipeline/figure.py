"""Draw runs with matplotlib: a panel for each metric, a line for each run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import matplotlib
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from reference_trainer.distillation.metrics import EVALUATED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.typing import LineStyleType

    from reference_trainer.pipeline.plot import PlottedRun

# Okabe and Ito, "Color Universal Design", 2008: distinct under the common kinds of colour blindness. A brown replaces
# their yellow.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F")
_STYLES: Sequence[LineStyleType] = ("-", "--", "-.", ":")
_NATS = "nats per token"
_UNITS = {
    **dict.fromkeys(("loss", "soft_loss", "hard_loss", "kl_at_T", "kl_at_1", "teacher_loss", "teacher_entropy"), _NATS),
    **dict.fromkeys(("student_perplexity", "teacher_perplexity"), "perplexity"),
    "learning_rate": "learning rate",
    **dict.fromkeys(("agreement", "token_accuracy"), "fraction of tokens"),
    "accept_length": "tokens",
    "steps_per_s": "steps per second",
    "tokens_per_s": "tokens per second",
}
_BUCKETS = 1000  # a panel is less than a thousand pixels wide
_MOST_MARKERS = 30  # a line of at most 30 points has markers, because a line of a single point is not visible


def draw(runs: Sequence[PlottedRun], names: Sequence[str], file: Path, *, format: str) -> None:
    """Write a figure with one panel for each metric.

    No display is needed. The global state of `pyplot` is neither read nor changed.

    Args:
        runs: The runs, one line each.
        names: The metrics, one panel each.
        file: The file to write.
        format: "png" or "svg".
    """
    columns = min(3, math.ceil(math.sqrt(len(names))))  # about as many rows as columns
    rows = math.ceil(len(names) / columns)
    layout = ConstrainedLayoutEngine(hspace=0.06, wspace=0.04)
    figure = Figure(figsize=(5.2 * columns + 0.4, 3.2 * rows + 0.5), dpi=120, layout=layout)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True).flatten()
    for panel, name in zip(panels, names, strict=False):  # the last row may have more panels than names
        _panel(panel, name, runs)
    for panel in panels[len(names) :]:
        panel.remove()
    # The last panel of every column shows the axis of steps, even if the last row is not full.
    for panel in panels[max(len(names) - columns, 0) : len(names)]:
        panel.set_xlabel("optimizer step")
        panel.tick_params(labelbottom=True)
    figure.align_ylabels()
    _legend(figure, runs)
    with matplotlib.rc_context({"svg.hashsalt": "reference-trainer"}):  # fixed ids, so that equal runs give equal files
        figure.savefig(file, format=format, metadata={"Date": None} if format == "svg" else None)


def _panel(panel: Axes, name: str, runs: Sequence[PlottedRun]) -> None:
    panel.set_title(name, loc="left", parse_math=False)
    panel.set_ylabel(_UNITS.get(name.removeprefix(EVALUATED), name), parse_math=False)
    panel.ticklabel_format(axis="y", scilimits=(-3, 5), useMathText=True)
    panel.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    panel.grid(alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)
    for index, run in enumerate(runs):
        if name in run.points:
            _line(panel, *run.points[name], _line_style(index))


def _line(panel: Axes, steps: list[int], values: list[float], style: _LineStyle) -> None:
    """Draw the values of a run over its steps. Values that are not finite are crosses at the bottom of the panel."""
    points = list(zip(steps, values, strict=True))
    finite = thin_out([(step, value) for step, value in points if math.isfinite(value)])
    crosses = thin_out([(step, 0.02) for step, value in points if not math.isfinite(value)])
    panel.plot(*_columns(finite), **style, marker="o" if len(finite) <= _MOST_MARKERS else None, markersize=3)
    if crosses:
        panel.set_title("× not finite", loc="right", fontsize="small")
        panel.plot(
            *_columns(crosses),
            color=style["color"],
            transform=panel.get_xaxis_transform(),
            linestyle="none",
            marker="x",
            clip_on=False,
        )


def thin_out(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Thin out a line but keep its peaks: return the lowest and the highest point of each of 1000 parts, in order.

    A line of at most 2000 points is unchanged.

    Args:
        points: Pairs of a step and a value, sorted by step.
    """
    if len(points) <= 2 * _BUCKETS:
        return points
    selected = []
    for index in range(_BUCKETS):
        bucket = points[index * len(points) // _BUCKETS : (index + 1) * len(points) // _BUCKETS]
        lowest, highest = min(bucket, key=itemgetter(1)), max(bucket, key=itemgetter(1))
        selected += sorted({lowest, highest})  # a set, because both may be the same point
    return selected


def _columns(points: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
    """Return the steps and the values of points."""
    return [step for step, _ in points], [value for _, value in points]


class _LineStyle(TypedDict):
    """Properties of a line of matplotlib."""

    color: str
    linestyle: LineStyleType
    linewidth: float


def _line_style(index: int) -> _LineStyle:
    """Return the style of the line of a run, by the index of the run."""
    return {"color": _COLOURS[index], "linestyle": _STYLES[index % len(_STYLES)], "linewidth": 1.4}


def _legend(figure: Figure, runs: Sequence[PlottedRun]) -> None:
    """Add a legend above all panels."""
    lines = [Line2D([], [], **_line_style(index)) for index in range(len(runs))]
    legend = figure.legend(lines, [str(index) for index in range(len(runs))], loc="outside upper center", ncols=4)
    for text, run in zip(legend.get_texts(), runs, strict=True):
        text.set_parse_math(False)  # a "$" in a label is a character
        text.set_text(run.label)
