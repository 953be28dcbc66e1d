"""Attacks on the claims about parameters."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import Events, Plan, attack, first, of, plans


@given(plans(), st.booleans())
def falsify_optimizer_holds_the_model(subject: Any, plan: Plan, twin: bool) -> None:
    def replace(events: Events) -> None:
        first(events, "held").update(in_no_model=1, in_no_model_shapes=[[4, 3]])
        if twin:
            first(events, "parameters").update(held=7, left_out=["head.weight"], left_out_shapes=[[4, 3]])

    attack(subject, "TR-PARAM-001", plan, replace, hint=not twin)


def lacking(**facts: Any) -> Callable[[Events], None]:
    """Return an edit of what the observer notes of the parameters of the model."""
    return lambda events: first(events, "parameters").update(facts)


@given(plans())
def falsify_trainable_parameters_are_held(subject: Any, plan: Plan) -> None:
    edit = lacking(held=7, left_out=["head.weight"], left_out_shapes=[[4, 3]])
    attack(subject, "TR-PARAM-002", plan, edit, hint=True)


@given(plans())
def falsify_layers_belong_to_the_model(subject: Any, plan: Plan) -> None:
    attack(subject, "TR-PARAM-003", plan, lacking(outside=["Linear.weight"]), hint=True)


@given(plans())
def falsify_layers_get_gradients(subject: Any, plan: Plan) -> None:
    attack(subject, "TR-PARAM-006", plan, lacking(without_gradient=["encoder.weight"]), hint=True)


def moving(**facts: Any) -> Callable[[Events], None]:
    """Return an edit of what the observer notes of the parameters that steps move."""

    def edit(events: Events) -> None:
        for event in of(events, "step"):
            if "moved" in event:
                event["moved"].update(facts)

    return edit


@given(plans())
def falsify_parameters_move(subject: Any, plan: Plan) -> None:
    attack(subject, "TR-PARAM-004", plan, moving(unmoved=["encoder.weight"]))


@given(plans())
def falsify_frozen_parameters_stay(subject: Any, plan: Plan) -> None:
    attack(subject, "TR-PARAM-005", plan, moving(moved_frozen=["encoder.weight"]))
