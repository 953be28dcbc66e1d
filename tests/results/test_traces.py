"""What a report draws of a trace: events in order, and a bounded number of losses."""

from pv.results.traces import MAX_EVENTS, MAX_POINTS, trace_of


def test_equal_events_in_a_row_are_counted() -> None:
    events = [{"event": name} for name in ("begin", "step", "step", "save", "step")]
    assert trace_of("r", "cpu", 1.0, events).events == (("begin", 1), ("step", 2), ("save", 1), ("step", 1))


def test_losses_are_thinned_out_and_keep_both_ends() -> None:
    events = [{"event": "step", "step": n, "loss": n / 2} for n in range(5000)]
    losses = trace_of("r", "cpu", 1.0, events).losses
    assert len(losses) == MAX_POINTS
    assert (losses[0], losses[-1]) == ((0.0, 0.0), (4999.0, 2499.5))


def test_what_is_no_finite_number_is_no_point() -> None:
    values = (None, "nan", float("nan"), float("inf"), 10**400, True, [1])
    assert trace_of("r", "cpu", 1.0, [{"event": "step", "step": 1, "loss": value} for value in values]).losses == ()


def test_events_are_limited_and_those_without_a_name_left_out() -> None:
    events = [{"event": str(n)} for n in range(1000)]
    assert len(trace_of("r", "cpu", 1.0, [{"step": 1}, {"event": 3}, *events]).events) == MAX_EVENTS
