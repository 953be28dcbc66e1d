"""Attacks on the claims about weights that are loaded."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

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


@given(plans(), st.floats(0.25, 0.9), st.booleans())
def falsify_model_runs_with_loaded_weights(subject: Any, plan: Plan, share: float, anew: bool) -> None:
    def lose(events: Events) -> None:
        names, row = "abcd" if anew else "ab", [0.0, 0.0, 0.1] if anew else [1 - share, share, 0.9]
        first(events, "after_load")["changed"] = [[name, *row] for name in names]
        loads = of(events, "load")[1:]
        events[:] = [event for event in events if not anew or event not in loads]

    attack(subject, "TR-LOAD-003", plan, lose)


@given(plans())
def falsify_tied_parameters_stay_tied(subject: Any, plan: Plan) -> None:
    def untie(events: Events) -> None:
        first(events, "after_load").update(untied=[["a", "b"]], untied_equal=[["a", "b"]])

    attack(subject, "TR-LOAD-004", plan, untie)
