"""Attacks on the claims about weights that are saved and loaded."""

from types import ModuleType

from hypothesis import assume, given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import Events, Plan, attack, first, of_kind, plans


@given(plans(), st.booleans(), st.booleans())
def falsify_loaded_weights_are_a_copy(subject: ModuleType, plan: Plan, into_itself: bool, newest: bool) -> None:
    """Load a state that shares its tensors with a trained model, in one of three ways.

    1. `newest`: a model loads its own newest state, after three different steps.
    2. `into_itself`: a model loads its own state from an earlier step.
    3. Otherwise: another model loads a state from an earlier step.
    """

    def alias(events: Events) -> None:
        load = first(events, "load")
        if newest:
            position = events.index(load)
            events[position : position + 1] = [
                load | {"step": step, "taken_at_step": step, "same_storage": 8, "at": "t.py:11"} for step in (2, 3, 4)
            ]
        elif into_itself:
            load["same_storage"] = 8
        else:
            load["source"]["shared"] = True

    attack(subject, "TR-LOAD-001", plan, alias)


@given(plans(), st.booleans())
def falsify_saved_weights_are_a_copy(subject: ModuleType, plan: Plan, again: bool) -> None:
    """Save a state that shares its tensors with the model: the same state twice (`again`), or one of several states."""

    def alias(events: Events) -> None:
        first(events, "save")["sources"][0].update({"uses": 2} if again else {"unused": 1})

    attack(subject, "TR-SAVE-001", plan, alias)


@given(plans(), st.integers(1, 4))
def falsify_saved_optimizer_has_its_weights(subject: ModuleType, plan: Plan, count: int) -> None:
    """Save the moments of some parameters, but not their weights."""

    def leave_out(events: Events) -> None:
        first(events, "saved").update(lacking=count, names=["head.weight"])

    attack(subject, "TR-SAVE-002", plan, leave_out)


@given(plans(), st.booleans())
def falsify_best_state_is_the_best(subject: ModuleType, plan: Plan, by_library: bool) -> None:
    """Reverse the mode of a callback (`by_library`); or restore the state of the first epoch, the worst, at the end."""

    def reverse(events: Events) -> None:
        if by_library:
            for event in of_kind(events, "choice"):
                event["mode"] = "max"
            return
        load = dict(of_kind(events, "load")[-1])
        load["digests"] = [{"optimizer": 1, "digest": float(len(plan.epochs[0]))}]
        events.append(load)

    # The claim compares at least three evaluated states.
    assume(by_library or len(plan.epochs) == 3)
    attack(subject, "TR-SAVE-003", plan, reverse)


@given(plans(), st.integers(0, 2))
def falsify_something_is_loaded(subject: ModuleType, plan: Plan, kind: int) -> None:
    """Add a prefix to names in a file: to all names; to most names; or to all names, and load only names that fit."""

    def prefix(events: Events) -> None:
        load = of_kind(events, "load")[1]
        if kind == 0:
            load.update(missing_count=8, unexpected=["module.a"], unexpected_count=8)
        elif kind == 1:
            load.update(unexpected=["module.a"], unexpected_count=6, renamed=6, prefix="module.")
        else:
            load.update(missing_count=0, unused_file=["t.py:8", "module.a"])

    attack(subject, "TR-LOAD-002", plan, prefix)


@given(plans(), st.floats(0.25, 0.9), st.booleans())
def falsify_model_runs_with_loaded_weights(subject: ModuleType, plan: Plan, share: float, anew: bool) -> None:
    """After a load, initialize all weights again (`anew`), or set the last elements of two tensors to 0.

    Args:
        subject: The claims.
        plan: The correct run.
        share: The fraction of the elements that are set to 0.
        anew: Whether all weights are initialized again.
    """

    def lose(events: Events) -> None:
        # Unchanged elements, zeros at the end, correlation with the loaded values, new zeros.
        names, row = "abcd" if anew else "ab", [0.0, 0.0, 0.1, 0.0] if anew else [1 - share, share, 0.9, share]
        first(events, "after_load")["changed"] = [[name, *row] for name in names]
        # Weights that are loaded repeatedly are not judged.
        loads = of_kind(events, "load")[1:]
        events[:] = [event for event in events if not anew or event not in loads]

    attack(subject, "TR-LOAD-003", plan, lose)


@given(plans())
def falsify_tied_parameters_stay_tied(subject: ModuleType, plan: Plan) -> None:
    """Load a state so that one tied parameter becomes two equal parameters."""

    def untie(events: Events) -> None:
        first(events, "after_load").update(untied=[["a", "b"]], untied_equal=[["a", "b"]])

    attack(subject, "TR-LOAD-004", plan, untie)
