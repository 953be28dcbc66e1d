"""A reference run is drawn, and said in words."""

import pytest

from pv.report.html import charts
from pv.results.trial import RunTrace
from tests.report.html.pages import fragment, words

TRACE = RunTrace(
    run="real-text",
    device="cpu",
    seconds=61.27,
    events=(("begin", 1), ("step", 3), ("<b>", 1), ("step", 5)),
    losses=((1.0, 4.0), (2.0, 1.0), (4.0, 2.0)),
)


def test_the_curve_is_scaled_to_its_box_and_said_in_words() -> None:
    found = fragment(charts.run(TRACE))
    curve, strip = (each for each in found.iter() if str(each.tag).endswith("svg"))
    (line,) = (each for each in curve if str(each.tag).endswith("polyline"))
    assert line.get("points") == "20.0,20.0 220.0,160.0 620.0,113.3"
    said = "Loss 4 at step 1, 2 at step 4, lowest 1."
    assert curve.get("role") == "img" and said in str(curve.get("aria-label"))
    (caption,) = found.iter("figcaption")
    assert words(caption) == f"Reference run real-text on cpu, 61.27 s. {said}"
    assert strip.get("aria-label") == "Reference run real-text on cpu: order of 10 events"


@pytest.mark.parametrize("losses", [(), ((1.0, 2.0),), ((1.0, 2.0), (1.0, 2.0))])
def test_few_or_equal_points_are_no_error(losses: tuple[tuple[float, float], ...]) -> None:
    shown = charts.run(RunTrace(run="r", device="cpu", losses=losses))
    assert ("<polyline" in shown) == (len(losses) > 1)
