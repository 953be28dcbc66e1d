"""Attacks on the claims about weights that are loaded."""

from typing import Any

from hypothesis import given

from pv.suites.training_run.attacks.drawn import Events, Plan, attack, first, of, plans


@given(plans())
def falsify_loaded_weights_are_a_copy(subject: Any, plan: Plan) -> None:
    def alias(events: Events) -> None:
        first(events, "load")["same_storage"] = 8

    attack(subject, "TR-LOAD-001", plan, alias)


@given(plans())
def falsify_something_is_loaded(subject: Any, plan: Plan) -> None:
    def prefix(events: Events) -> None:
        of(events, "load")[1].update(missing_count=8, unexpected=["module.a"], unexpected_count=8)

    attack(subject, "TR-LOAD-002", plan, prefix)
