"""Attacks on the claims about averages of weights."""

from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import AVERAGE, Events, Plan, attack, of_kind, plans


@given(plans(), st.booleans())
def falsify_averages_follow_the_step(subject: ModuleType, plan: Plan, never: bool) -> None:
    """Update the average between the backward pass and the step, or never."""

    def update_before_step(events: Events) -> None:
        if never:
            events[:] = [event for event in events if event["event"] not in ("averaged_model", "average")]
            last = dict(of_kind(events, "parameters")[-1])
            events.append(last | {"model": AVERAGE, "initial": True})
        for event in of_kind(events, "average"):
            event.update(since="backward", until="step")

    attack(subject, "TR-AVG-001", plan, update_before_step)


@given(plans(), st.floats(0.81, 0.9999))
def falsify_averages_keep_the_past(subject: ModuleType, plan: Plan, share: float) -> None:
    """Give the new weights a large share in every update of the average."""

    def swap(events: Events) -> None:
        # The claim needs at least 20 updates.
        averages = of_kind(events, "average")
        events += [dict(event) for event in averages for _ in range(20)]
        for event in of_kind(events, "average"):
            event["share"] = share

    attack(subject, "TR-AVG-004", plan, swap)


@given(plans(), st.floats(0.41, 1.0), st.floats(0.991, 1.0))
def falsify_averages_are_not_rounded_away(subject: ModuleType, plan: Plan, stuck: float, order: float) -> None:
    """Leave a large part of the elements unchanged, and change only the farthest ones."""

    def round_away(events: Events) -> None:
        # The claim needs at least 20 updates.
        events += [dict(event) for event in of_kind(events, "average") for _ in range(20)]
        for event in of_kind(events, "average"):
            event["rounded"] = [100, 100 * stuck, 20, order]

    attack(subject, "TR-AVG-005", plan, round_away)


@given(plans())
def falsify_averages_copy_statistics(subject: ModuleType, plan: Plan) -> None:
    """Leave the normalization layers of the average with their initial statistics."""

    def leave_out_statistics(events: Events) -> None:
        next(event for event in of_kind(events, "statistics") if event["model"] == AVERAGE)["initial"] = 2

    attack(subject, "TR-AVG-003", plan, leave_out_statistics)


@given(plans())
def falsify_averages_have_their_statistics(subject: ModuleType, plan: Plan) -> None:
    """Never call update_bn."""

    def forget_update_bn(events: Events) -> None:
        events[:] = [event for event in events if event["event"] != "update_bn"]

    attack(subject, "TR-AVG-002", plan, forget_update_bn)
