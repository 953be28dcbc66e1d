"""Attacks on the claims about modes."""

from typing import Any

from hypothesis import given

from pv.suites.training_run.attacks.drawn import Events, Plan, attack, of, plans


@given(plans())
def falsify_training_is_in_training_mode(subject: Any, plan: Plan) -> None:
    def stay(events: Events) -> None:
        evaluated = False
        for event in of(events, "mode", "forward"):
            if event["event"] == "mode":
                evaluated = True
            elif evaluated and event["grad"]:
                event.update(training_layers=0, eval_layers=2, training=False)

    attack(subject, "TR-MODE-001", plan, stay)


@given(plans())
def falsify_evaluation_is_in_eval_mode(subject: Any, plan: Plan) -> None:
    def forget(events: Events) -> None:
        for event in of(events, "forward"):
            event.update(training_layers=2, eval_layers=0, training=True)

    attack(subject, "TR-MODE-002", plan, forget)
