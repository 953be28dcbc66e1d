"""The trace of a run is short enough for a report, and ends where the run ended."""

from pv.results.trial import MAX_POINTS, trace_of


def test_a_long_series_of_losses_keeps_its_first_and_its_last_one() -> None:
    events = [{"event": "step", "step": step, "loss": 1 / step} for step in range(1, 4 * MAX_POINTS)]
    losses = trace_of("run", "cpu", 1.0, events).losses
    assert len(losses) == MAX_POINTS
    assert [losses[0][0], losses[-1][0]] == [1, 4 * MAX_POINTS - 1]
