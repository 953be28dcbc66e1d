"""Draws a reference run: its loss by step, and the order of its events."""

from pv.report.html.markup import Html, join, tag
from pv.results.trial import RunTrace

WIDTH, HEIGHT, EDGE = 640, 180, 20
SHADES = 6
MAX_LISTED = 60


def run(trace: RunTrace) -> Html:
    """Return the figure of one run: a curve and a strip, both also in words."""
    name = f"Reference run {trace.run} on {trace.device}"
    caption = tag("figcaption", f"{name}, {trace.seconds:.2f} s. {_words(trace)}")
    return tag("figure", caption, _curve(trace, name), _strip(trace, name), data_search=True)


def _words(trace: RunTrace) -> str:
    if not trace.losses:
        return ""
    (first, start), (last, end) = trace.losses[0], trace.losses[-1]
    low = min(loss for _, loss in trace.losses)
    return f"Loss {start:.4g} at step {first:g}, {end:.4g} at step {last:g}, lowest {low:.4g}."


def _curve(trace: RunTrace, name: str) -> Html:
    if len(trace.losses) < 2:
        return join(None)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in _scaled(trace.losses))
    axis = tag("line", x1=EDGE, y1=HEIGHT - EDGE, x2=WIDTH - EDGE, y2=HEIGHT - EDGE, class_="axis")
    label = f"{name}: loss by step. {_words(trace)}"
    curve = tag("polyline", points=points, class_="loss")
    size = f"0 0 {WIDTH} {HEIGHT}"
    return tag("svg", axis, curve, _ticks(trace), viewBox=size, role="img", aria_label=label)


def _ticks(trace: RunTrace) -> Html:
    """Return the highest and lowest loss, and the first and last step, at the ends of their axes."""
    losses = [loss for _, loss in trace.losses]
    bottom, right = HEIGHT - 4, WIDTH - EDGE
    places = [
        (EDGE, EDGE - 6, "start", f"{max(losses):.4g}"),
        (EDGE, HEIGHT - EDGE - 4, "start", f"{min(losses):.4g}"),
        (EDGE, bottom, "start", f"step {trace.losses[0][0]:g}"),
        (right, bottom, "end", f"step {trace.losses[-1][0]:g}"),
    ]
    return join([tag("text", label, x=x, y=y, text_anchor=anchor, class_="tick") for x, y, anchor, label in places])


def _scaled(points: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
    """Return the points in the coordinates of the drawing."""
    low_x, high_x = min(x for x, _ in points), max(x for x, _ in points)
    low_y, high_y = min(y for _, y in points), max(y for _, y in points)
    wide, high = (WIDTH - 2 * EDGE) / (high_x - low_x or 1), (HEIGHT - 2 * EDGE) / (high_y - low_y or 1)
    return [(EDGE + (x - low_x) * wide, HEIGHT - EDGE - (y - low_y) * high) for x, y in points]


def _strip(trace: RunTrace, name: str) -> Html:
    if not trace.events:
        return join(None)
    kinds = {event: index for index, event in enumerate(dict.fromkeys(event for event, _ in trace.events))}
    total, at, parts = sum(number for _, number in trace.events), 0.0, []
    for event, number in trace.events:
        width = number / total * (WIDTH - 2 * EDGE)
        tip = tag("title", f"{event} × {number}")
        block = tag(
            "rect", x=f"{EDGE + at:.2f}", y=0, width=f"{width:.2f}", height=20, class_=f"e{kinds[event] % SHADES}"
        )
        parts.append(tag("g", tip, block))
        at += width
    label = f"{name}: order of {total} events"
    strip = tag("svg", parts, viewBox=f"0 0 {WIDTH} 20", role="img", aria_label=label, class_="strip")
    return join([strip, _legend(trace, kinds), _list(trace)])


def _legend(trace: RunTrace, kinds: dict[str, int]) -> Html:
    counts = {event: sum(number for other, number in trace.events if other == event) for event in kinds}
    items = [
        tag("li", tag("span", "", class_=f"key e{index % SHADES}", aria_hidden="true"), f"{event} × {counts[event]}")
        for event, index in kinds.items()
    ]
    return tag("ul", items, class_="legend")


def _list(trace: RunTrace) -> Html:
    """Return the events in order, in words."""
    labels = [f"{event} × {number}" if number > 1 else event for event, number in trace.events[:MAX_LISTED]]
    more = f" … {len(trace.events) - MAX_LISTED} more" if len(trace.events) > MAX_LISTED else ""
    return tag("details", tag("summary", "Events in order"), tag("p", " → ".join(labels) + more))
