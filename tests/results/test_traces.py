"""What a report draws of a trace: events in order, and a bounded number of losses."""

from pv.results.traces import trace_of


def test_what_is_no_finite_number_is_no_point() -> None:
    values = (None, "nan", float("nan"), float("inf"), 10**400, True, [1])
    assert trace_of("r", "cpu", 1.0, [{"event": "step", "step": 1, "loss": value} for value in values]).losses == ()
