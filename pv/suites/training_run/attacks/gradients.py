"""Attacks on the claims about gradients of a step."""

from dataclasses import replace
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import CRITIC, GENERATOR, Events, Plan, attack, first, of_kind, plans


@given(plans(), st.booleans())
def falsify_gradients_are_cleared(subject: ModuleType, plan: Plan, has_masters: bool) -> None:
    def keep_gradients(events: Events) -> None:
        if has_masters:  # the optimizer holds master weights, which no backward pass reaches
            for event in of_kind(events, "backward"):
                event.update(reached={}, copied={"1": 1.0})
            for event in of_kind(events, "step"):
                event["copied"] = [0.0, 0.5]
            return
        second = of_kind(events, "backward")[len(plan.epochs[0][0])]
        second["reached"]["1"].update(left_over=1.0, kept=1.0)

    attack(subject, "TR-GRAD-001", plan, keep_gradients)


@given(plans())
def falsify_step_has_its_backward_pass(subject: ModuleType, plan: Plan) -> None:
    def step_twice(events: Events) -> None:
        step = of_kind(events, "step")[1]
        events.insert(events.index(step) + 1, dict(step))

    attack(subject, "TR-GRAD-002", plan, step_twice)


@given(plans(), st.booleans())
def falsify_gradients_arrive(subject: ModuleType, plan: Plan, unreached: bool) -> None:
    """Clear gradients before each step, or, if `unreached`, let no backward pass reach parameters of the optimizer."""

    def clear_late(events: Events) -> None:
        if unreached:
            for event in of_kind(events, "backward"):
                event["reached"] = {}
            for step in of_kind(events, "step"):
                step.update(norm=None, gradients=0, digest=1.0)
            return
        for step in of_kind(events, "step"):
            step.update(norm=None, gradients=0)
            events.insert(events.index(step), {"event": "zero", "optimizers": [1], "at": "t.py:6"})

    attack(subject, "TR-GRAD-003", plan, clear_late)


@given(plans(), st.booleans())
def falsify_gradients_are_used(subject: ModuleType, plan: Plan, divided: bool) -> None:
    """Clear gradients before every pass. Only losses that are `divided` by the micro-batches falsify the claim."""

    def clear_before_every_pass(events: Events) -> None:
        for event in of_kind(events, "backward"):
            if "1" in event["reached"]:
                event["reached"]["1"]["left_over"] = 0.0
                if not divided:
                    event.update(losses=[], logits=[])
                for loss in event["losses"]:
                    weight = 1 / (len(plan.epochs[0][0]) * loss["elements"])
                    loss.update(weight=weight, low=weight, high=weight)
                    event["losses"] = [loss]

    plan = replace(plan, logits=False, scale=1.0) if divided else plan
    attack(subject, "TR-GRAD-004", plan, clear_before_every_pass, hint=not divided)


@given(plans(), st.booleans())
def falsify_gradients_are_finite(subject: ModuleType, plan: Plan, finite: bool) -> None:
    """Apply NaN gradients, or, if `finite`, let a step make weights NaN from a finite gradient."""

    def apply_nan(events: Events) -> None:
        for step in of_kind(events, "step")[2:]:
            step.update(norm=1.0 if finite else float("nan"), digest=float("nan"), by_scaler=False)

    attack(subject, "TR-NAN-001", replace(plan, scale=1.0), apply_nan)


@given(plans())
def falsify_opponents_are_apart(subject: ModuleType, plan: Plan) -> None:
    def reach_generator(events: Events) -> None:
        game_passes = [event for event in of_kind(events, "backward") if str(CRITIC) in event["reached"]]
        for critic, generator in zip(game_passes[::2], game_passes[1::2], strict=True):
            critic["reached"][str(GENERATOR)] = dict(critic["reached"][str(CRITIC)])
            generator["reached"][str(GENERATOR)].update(left_over=1.0, kept=1.0)

    attack(subject, "TR-GRAD-005", plan, reach_generator, in_game=True)


@given(plans(), st.booleans())
def falsify_samples_carry_gradients(subject: ModuleType, plan: Plan, trained: bool) -> None:
    def forget_log_probs(events: Events) -> None:
        first(events, "distributions")["sources"][0].update(log_probs=0, arrived=9 * trained)

    attack(subject, "TR-GRAD-006", plan, forget_log_probs, hint=not trained)


@given(plans(), st.integers(2, 4), st.booleans())
def falsify_every_loss_is_used(subject: ModuleType, plan: Plan, count: int, shown: bool) -> None:
    def drop_losses(events: Events) -> None:
        for number, event in enumerate(of_kind(events, "backward")):
            rows = [
                {"key": 5, "gone": k < count, "shown": shown, "input": 10 * number + k + 1} for k in range(count + 1)
            ]
            event["computed"] = rows

    attack(subject, "TR-GRAD-007", replace(plan, logits=False), drop_losses, hint=shown)
