"""Plot the metrics files of runs: read the runs, choose the metrics, and write the image that `figure` draws."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reference_trainer.callbacks.metrics_file import METRICS_FILE, read_metrics
from reference_trainer.errors import DataError, OutputError, SettingError
from reference_trainer.storage.files import atomic_write

FORMATS = (".png", ".svg")
MOST_RUNS = 8  # the palette has eight colours

_FIRST_METRICS = ("loss", "learning_rate")


@dataclass(frozen=True, slots=True)
class PlottedRun:
    """A label for the legend, and the steps and values of each metric of a run, including `learning_rate`."""

    label: str
    points: dict[str, tuple[list[int], list[float]]]


def plot(runs: Sequence[Path], out: Path, *, metrics: Sequence[str] = (), force: bool = False) -> tuple[str, ...]:
    """Draw the metrics of one to eight runs into a PNG or SVG file: one panel per metric, one line per run.

    The extra `plot` must be installed.

    Args:
        runs: Metrics files, or directories with a `metrics.jsonl`.
        out: The file to write; its suffix is the format.
        metrics: The names of the metrics; by default all metrics of the runs, except constant metrics and metrics that
            equal an earlier one.
        force: Whether to overwrite an existing file.

    Returns:
        Lines about the metrics that are left out.

    Raises:
        SettingError: The suffix or the number of runs is invalid, or a metric is unknown.
        OutputError: `out` exists, without `force`, or cannot be written.
        DataError: A metrics file cannot be read or has no points.
    """
    if out.suffix not in FORMATS:
        raise SettingError(f"invalid value '{out}' for --out: expected a name that ends in {' or '.join(FORMATS)}")
    if os.path.lexists(out) and not (force and out.is_file()):
        raise OutputError(f"{out} exists; give another --out{', or --force to overwrite it' * out.is_file()}")
    plotted = read_runs(runs)
    names, notes = _choose_metrics(metrics, plotted)
    from reference_trainer.pipeline.figure import draw  # imports matplotlib, so after all checks

    try:
        atomic_write(out, partial(draw, plotted, names, format=out.suffix[1:]))
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error.strerror}; give another --out") from error
    return notes


def read_runs(paths: Sequence[Path]) -> list[PlottedRun]:
    """Return the runs of metrics files or directories; only equal paths have equal labels. Raise as `plot`."""
    if not 1 <= len(paths) <= MOST_RUNS:
        raise SettingError(f"invalid number of runs {len(paths)}: expected 1 to {MOST_RUNS}")
    return [_read(path, label) for path, label in zip(paths, _labels(paths), strict=True)]


def _read(path: Path, label: str) -> PlottedRun:
    file = path / METRICS_FILE if path.is_dir() else path
    points: dict[str, tuple[list[int], list[float]]] = {}
    for line in read_metrics(file):
        rate = {} if line.learning_rate is None else {"learning_rate": line.learning_rate}
        for name, value in {**rate, **line.metrics}.items():
            steps, values = points.setdefault(name, ([], []))
            steps.append(line.step)
            values.append(value)
    if not points:
        raise DataError(f"{file} has no points yet; the run has logged no step")
    return PlottedRun(label, points)


def _labels(paths: Sequence[Path]) -> list[str]:
    """Return labels: the name of a run's directory, or of a file of another name; if two names are equal, all paths."""
    names = [(path.parent if path.name == METRICS_FILE else path).resolve().name for path in paths]
    return names if len({*names}) == len(names) else [str(path) for path in paths]


def _choose_metrics(metrics: Sequence[str], runs: Sequence[PlottedRun]) -> tuple[list[str], tuple[str, ...]]:
    """Return the metrics to draw, and lines about metrics that are left out.

    These are `metrics` in the given order, or by default metrics of the runs, loss and learning rate first.
    """
    names = list(dict.fromkeys(name for run in runs for name in run.points))
    for name in metrics:
        if name not in names:
            similar = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {similar[0]!r}? " if similar else ""
            raise SettingError(f"unknown metric {name!r} ({hint}choose from {', '.join(sorted(names))})")
    first = [name for name in _FIRST_METRICS if name in names]
    if metrics:
        return list(dict.fromkeys(metrics)), ()
    # Leave out constant metrics, unless all metrics are constant, and metrics that equal a chosen metric in every run.
    ordered = [*first, *(name for name in names if name not in first)]
    changing = [name for name in ordered if not _is_constant(name, runs)] or ordered
    chosen, equal = list[str](), dict[str, list[str]]()
    for name in changing:
        equal_metric = next(
            (metric for metric in chosen if all(run.points.get(metric) == run.points.get(name) for run in runs)), ""
        )
        if equal_metric:
            equal.setdefault(equal_metric, []).append(name)
        else:
            chosen.append(name)
    notes = [f"not drawn, because equal to {name}: {', '.join(same)}" for name, same in equal.items()]
    if constant := [name for name in ordered if name not in changing]:
        notes.append(f"not drawn, because constant: {', '.join(constant)}")
    return chosen, tuple(notes)


def _is_constant(name: str, runs: Iterable[PlottedRun]) -> bool:
    """Return whether all values of a metric in all runs are equal, with at least two values in every run."""
    values = [run.points[name][1] for run in runs if name in run.points]
    return all(len(series) > 1 for series in values) and len({value for series in values for value in series}) == 1
