"""Draw SVG figures of runs. Every figure has a text alternative with its main values."""

from collections.abc import Sequence

from pv.report.html.markup import Html, join, tag
from pv.results.evidence import RunTrace
from pv.results.steps import ObservedStep

Points = tuple[tuple[float, float], ...]

WIDTH, HEIGHT, EDGE = 640, 180, 20
"""Size of a figure, and the margin on each of its sides, in units of the SVG."""
SHADES = 6
"""Number of colors for kinds of events; the classes `e0`, `e1`, ... of the style sheet."""
MAX_LISTED = 60
"""Number of rows of events in the text alternative of a strip."""


def run(trace: RunTrace) -> Html:
    """Return the figure of a reference run: the loss by step, and a strip with the order of its events."""
    name = f"Reference run {trace.run} on {trace.device}"
    summary = _summary(trace.losses, "Loss")
    caption = tag("figcaption", f"{name}, {trace.seconds:.2f} s. {summary}")
    curve = _curve(trace.losses, f"{name}: loss by step. {summary}")
    return tag("figure", caption, curve, _strip(trace, name), data_search=True)


def observed(title: str, steps: Sequence[ObservedStep]) -> Html:
    """Return figures of an observed run: loss, learning rate, norm of the gradient, and largest weight by step.

    Args:
        title: The name of the optimizer and its run, for the text alternatives.
        steps: The steps of one optimizer. A quantity with fewer than two values has no figure.
    """
    series = {
        "Loss": [(step.step, step.loss) for step in steps],
        "Learning rate": [(step.step, step.rate) for step in steps],
        "Norm of the gradient": [(step.step, step.norm) for step in steps],
        "Largest weight of a scored element": [(step.step, step.highest_weight) for step in steps],
    }
    figures = []
    for name, values in series.items():
        points = tuple((float(step), value) for step, value in values if value is not None)
        summary = _summary(points, name)
        if len(points) > 1:
            figures.append(tag("figure", tag("figcaption", summary), _curve(points, f"{title}. {summary}")))
    return join(figures)


def _summary(points: Points, name: str) -> str:
    """Return the first, last and lowest value of a curve in words."""
    if not points:
        return ""
    (first, start), (last, end) = points[0], points[-1]
    low = min(value for _, value in points)
    return f"{name} {start:.4g} at step {first:.12g}, {end:.4g} at step {last:.12g}, lowest {low:.4g}."


def _curve(points: Points, label: str) -> Html:
    """Return a curve with its axis and ticks; nothing for fewer than two points."""
    if len(points) < 2:
        return join(None)
    coordinates = " ".join(f"{x:.1f},{y:.1f}" for x, y in _scaled(points))
    axis = tag("line", x1=EDGE, y1=HEIGHT - EDGE, x2=WIDTH - EDGE, y2=HEIGHT - EDGE, class_="axis")
    curve = tag("polyline", points=coordinates, class_="loss")
    size = f"0 0 {WIDTH} {HEIGHT}"
    return tag("svg", axis, curve, _ticks(points), viewBox=size, role="img", aria_label=label)


def _ticks(points: Points) -> Html:
    """Return labels with the highest and lowest value and the first and last step, at the ends of their axes."""
    values = [value for _, value in points]
    bottom, right = HEIGHT - 4, WIDTH - EDGE
    places = [
        (EDGE, EDGE - 6, "start", f"{max(values):.4g}"),
        (EDGE, HEIGHT - EDGE - 4, "start", f"{min(values):.4g}"),
    ]
    if min(values) == max(values):
        places = [(EDGE, HEIGHT // 2 - 6, "start", f"{max(values):.4g}")]
    places += [
        (EDGE, bottom, "start", f"step {points[0][0]:.12g}"),
        (right, bottom, "end", f"step {points[-1][0]:.12g}"),
    ]
    return join([tag("text", label, x=x, y=y, text_anchor=anchor, class_="tick") for x, y, anchor, label in places])


def _scaled(points: Points) -> list[tuple[float, float]]:
    """Return the points in the coordinates of the drawing. A constant curve is drawn at half the height."""
    low_x, high_x = min(x for x, _ in points), max(x for x, _ in points)
    low_y, high_y = min(y for _, y in points), max(y for _, y in points)
    # The range of a constant curve is 0: widen it, because the scale divides by the range.
    if low_y == high_y:
        low_y, high_y = low_y - 1, high_y + 1
    scale_x, scale_y = (WIDTH - 2 * EDGE) / (high_x - low_x or 1), (HEIGHT - 2 * EDGE) / (high_y - low_y)
    return [(EDGE + (x - low_x) * scale_x, HEIGHT - EDGE - (y - low_y) * scale_y) for x, y in points]


def _strip(trace: RunTrace, name: str) -> Html:
    """Return a bar of blocks, one for each row of events in order; its width shows how often the event is repeated."""
    if not trace.events:
        return join(None)
    kinds = {event: index for index, event in enumerate(dict.fromkeys(event for event, _ in trace.events))}
    total, offset, parts = sum(number for _, number in trace.events), 0.0, []
    for event, number in trace.events:
        width = number / total * (WIDTH - 2 * EDGE)
        tip = tag("title", f"{event} × {number}")
        block = tag(
            "rect", x=f"{EDGE + offset:.2f}", y=0, width=f"{width:.2f}", height=20, class_=f"e{kinds[event] % SHADES}"
        )
        parts.append(tag("g", tip, block))
        offset += width
    label = f"{name}: order of {total} events"
    strip = tag("svg", parts, viewBox=f"0 0 {WIDTH} 20", role="img", aria_label=label, class_="strip")
    return join([strip, _legend(trace, kinds), _event_list(trace)])


def _legend(trace: RunTrace, kinds: dict[str, int]) -> Html:
    """Return a list of the kinds of events, each with its color and its number of events."""
    counts = {event: sum(number for other, number in trace.events if other == event) for event in kinds}
    items = [
        tag("li", tag("span", "", class_=f"key e{index % SHADES}", aria_hidden="true"), f"{event} × {counts[event]}")
        for event, index in kinds.items()
    ]
    return tag("ul", items, class_="legend")


def _event_list(trace: RunTrace) -> Html:
    """Return the events in order, as text."""
    labels = [f"{event} × {number}" if number > 1 else event for event, number in trace.events[:MAX_LISTED]]
    omitted = f" … {len(trace.events) - MAX_LISTED} more" if len(trace.events) > MAX_LISTED else ""
    return tag("details", tag("summary", "Events in order"), tag("p", " → ".join(labels) + omitted))
