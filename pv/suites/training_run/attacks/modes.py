"""Attacks on the claims about modes."""

from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import TEACHER, Events, Plan, attack, of_kind, plans


@given(plans(), st.booleans())
def falsify_training_is_in_training_mode(subject: ModuleType, plan: Plan, new: bool) -> None:
    """Train in eval mode after the first evaluation; or always (`new`), with the initial statistics of the layers."""

    def stay_in_eval_mode(events: Events) -> None:
        evaluated = new
        next(event for event in of_kind(events, "statistics") if event["model"] == 2)["initial"] = 2 * new
        for event in of_kind(events, "mode", "forward"):
            if event["event"] == "mode":
                evaluated = True
            elif evaluated and event["grad"]:
                event.update(training_layers=0, eval_layers=2, training=False)

    attack(subject, "TR-MODE-001", plan, stay_in_eval_mode)


@given(plans())
def falsify_evaluation_is_in_eval_mode(subject: ModuleType, plan: Plan) -> None:
    """Evaluate in training mode."""

    def forget(events: Events) -> None:
        for event in of_kind(events, "forward"):
            event.update(training_layers=2, eval_layers=0, training=True)

    attack(subject, "TR-MODE-002", plan, forget)


@given(plans())
def falsify_eval_mode_reaches_every_layer(subject: ModuleType, plan: Plan) -> None:
    """Apply dropout in an evaluation, although the model is in eval mode."""

    def leave_on(events: Events) -> None:
        evaluation = next(e for e in of_kind(events, "forward") if e["model"] == 2 and not e["grad"])
        facts = {"model": 2, "forward": evaluation["n"], "kind": "dropout", "rate": 0.1, "explicit": False}
        events.append({"event": "unreached", "n": -1, "at": "t.py:3", "on_input": False, **facts})

    attack(subject, "TR-MODE-003", plan, leave_on)


@given(plans(), st.booleans())
def falsify_frozen_statistics_stay(subject: ModuleType, plan: Plan, never_in_eval_mode: bool) -> None:
    """Undo the eval mode of a frozen part by a call on its parent; or never put the part into eval mode."""

    def move_statistics(events: Events) -> None:
        for event in of_kind(events, "frozen_part"):
            event.update(training=2, last={"at": "t.py:2", "forwards": 0, "training": True})
            if never_in_eval_mode:
                event.update(asked_eval=None, last=None)
        of_kind(events, "frozen_statistics")[0]["moved"] = 0.4

    attack(subject, "TR-MODE-004", plan, move_statistics)


@given(plans())
def falsify_fixed_networks_are_in_eval_mode(subject: ModuleType, plan: Plan) -> None:
    """Run the teacher in training mode, with dropout."""

    def forget(events: Events) -> None:
        for event in of_kind(events, "forward"):
            if event["model"] == TEACHER:
                event.update(training_layers=2, eval_layers=0, training=True, dropouts=1)

    attack(subject, "TR-MODE-005", plan, forget)


@given(plans())
def falsify_modes_freeze_before_training(subject: ModuleType, plan: Plan) -> None:
    """Freeze a parameter that was trained, in the first call of train() or eval()."""

    def freeze(events: Events) -> None:
        facts = {"names": ["stem.weight"], "count": 1, "trained": 8, "first": True, "step": 4, "still": True}
        events.append({"event": "froze", "n": -1, "at": "t.py:9", **facts})

    attack(subject, "TR-MODE-006", plan, freeze)
