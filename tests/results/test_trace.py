"""The trace of a run is short enough for a report, and has the first and the last step of the run."""

from pv.results.trial import MAX_POINTS, trace_of


def test_long_series_of_losses_keeps_its_first_and_last_point() -> None:
    events = [{"event": "step", "step": step, "loss": 1 / step} for step in range(1, 4 * MAX_POINTS)]
    losses = trace_of("run", "cpu", 1.0, events).losses
    assert len(losses) == MAX_POINTS
    assert [losses[0][0], losses[-1][0]] == [1, 4 * MAX_POINTS - 1]
