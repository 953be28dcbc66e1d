"""Attacks on the claims about averages of weights."""

from typing import Any

from hypothesis import given

from pv.suites.training_run.attacks.drawn import Events, Plan, attack, of, plans


@given(plans())
def falsify_averages_follow_the_step(subject: Any, plan: Plan) -> None:
    def lag(events: Events) -> None:
        for event in of(events, "average"):
            event.update(since="backward", until="step")

    attack(subject, "TR-AVG-001", plan, lag)


@given(plans())
def falsify_averages_have_their_statistics(subject: Any, plan: Plan) -> None:
    def forget(events: Events) -> None:
        events[:] = [event for event in events if event["event"] != "update_bn"]

    attack(subject, "TR-AVG-002", plan, forget)
