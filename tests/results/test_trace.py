"""The trace of a run is short enough for a report, and has the first and the last step of the run."""

from dataclasses import replace

from pv.results.evidence import MAX_POINTS, RunTrace, trace_of
from pv.results.steps import ObservedStep, cells


def test_long_series_of_losses_keeps_its_first_and_last_point() -> None:
    events = [{"event": "step", "step": step, "loss": 1 / step} for step in range(1, 4 * MAX_POINTS)]
    losses = trace_of("run", "cpu", 1.0, events).losses
    assert len(losses) == MAX_POINTS
    assert [losses[0][0], losses[-1][0]] == [1, 4 * MAX_POINTS - 1]


def test_a_trace_counts_events_in_a_row_and_keeps_finite_losses() -> None:
    odd = [float("nan"), float("inf"), True, "0.5", None, 10**400]
    events = [{"event": "step", "step": n, "loss": loss} for n, loss in enumerate([0.5, *odd, 2])]
    trace = trace_of(
        "run", "cpu", 1.5, [*events, {"event": "save"}, {"event": "save"}, {"step": 1, "loss": 1}, events[0]]
    )
    counts = (("step", 8), ("save", 2), ("step", 1))
    losses = ((0.0, 0.5), (7.0, 2.0), (0.0, 0.5))
    assert trace == RunTrace(run="run", device="cpu", seconds=1.5, events=counts, losses=losses)


def test_weights_that_differ_by_rounding_are_one_number() -> None:
    step = ObservedStep(**dict.fromkeys(ObservedStep.__slots__))
    pairs = {"-1": (-1.001, -1.0), "-2..-1": (-2.0, -1.0), "-": (None, 1.0)}
    shown = [cells(replace(step, lowest_weight=low, highest_weight=high))[6] for low, high in pairs.values()]
    assert shown == [*pairs]
