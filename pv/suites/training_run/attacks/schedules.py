"""Attacks on the claims about schedules."""

from dataclasses import replace
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import TEST, Events, Plan, attack, first, of_kind, plans


def _advances(events: Events) -> Events:
    """Return the advances of CosineAnnealingLR, the schedule with number 3."""
    return [event for event in of_kind(events, "schedule") if event["scheduler"] == 3]


@given(plans(), st.booleans())
def falsify_schedule_belongs_to_the_optimizer(subject: ModuleType, plan: Plan, alike: bool) -> None:
    """Schedule the rates of another optimizer, which has the same parameters and takes no step.

    An optimizer of another class may carry another value than the rate.
    """

    def schedule_other_optimizer(events: Events) -> None:
        for event in of_kind(events, "scheduler"):
            event["optimizers"] = [9]
        kind = {} if alike else {"kind": "Other"}
        events.append({**first(events, "optimizer"), "optimizer": 9, **kind})
        events.append({**first(events, "held"), "optimizer": 9, "steps": 0, "shares_with": [1]})

    attack(subject, "TR-RATE-001", plan, schedule_other_optimizer, hint=not alike)


@given(plans())
def falsify_schedule_advances(subject: ModuleType, plan: Plan) -> None:
    def never_advance(events: Events) -> None:
        events[:] = [event for event in events if event["event"] != "schedule"]

    attack(subject, "TR-RATE-002", plan, never_advance)


@given(plans())
def falsify_schedule_follows_the_step(subject: ModuleType, plan: Plan) -> None:
    def advance_before_step(events: Events) -> None:
        for event, step in zip(_advances(events), of_kind(events, "step"), strict=True):
            events.remove(event)
            events.insert(events.index(step), event)

    attack(subject, "TR-RATE-003", plan, advance_before_step)


@given(plans())
def falsify_schedule_advances_once_a_step(subject: ModuleType, plan: Plan) -> None:
    def advance_per_micro_batch(events: Events) -> None:
        events[:] = [event for event in events if event["event"] != "schedule"]
        for event in of_kind(events, "backward"):
            position = next(i for i, other in enumerate(events) if other is event)
            events.insert(position + 1, {"event": "schedule", "scheduler": 3, "explicit": False, "at": "t.py:5"})

    attack(subject, "TR-RATE-004", plan, advance_per_micro_batch)


@given(plans(), st.sampled_from(("once", "all_epochs", "in_epochs", "in_micro_batches")))
def falsify_schedule_ends_with_the_run(subject: ModuleType, plan: Plan, mistake: str) -> None:
    """Give a schedule a horizon in another unit than its advances.

    Args:
        subject: The claims.
        plan: The correct run.
        mistake: `once`: a OneCycleLR for all steps advances once an epoch. `in_epochs`, `all_epochs`: the horizon,
            `T_max` or `num_training_steps`, is the number of epochs. `in_micro_batches`: it counts micro-batches.
    """

    def once(events: Events) -> None:
        first(events, "scheduler").update(kind="OneCycleLR")
        last_of_epochs = _advances(events)[len(plan.epochs[0]) - 1 :: len(plan.epochs[0])]
        events[:] = [e for e in events if e["event"] != "schedule" or any(e is other for other in last_of_epochs)]

    def in_micro_batches(events: Events) -> None:
        full = max(len(window) for window in plan.epochs[0])
        first(events, "scheduler")["planned"]["T_max"] *= full
        # Leave out the evaluations: a run with evaluations may have stopped early.
        evaluation = ("evaluation_loss", "mode")
        training = [e for e in events if e.get("loader") != TEST and e["event"] not in evaluation]
        events[:] = [e for e in training if e["event"] != "forward" or e["grad"]]

    def in_epochs(events: Events) -> None:
        first(events, "scheduler")["planned"]["T_max"] = len(plan.epochs)

    def all_epochs(events: Events) -> None:
        first(events, "scheduler")["planned"] = {"num_training_steps": 3}

    if mistake == "all_epochs":
        plan = replace(plan, epochs=(plan.epochs[0],) * 3)
    edits = {"once": once, "all_epochs": all_epochs, "in_epochs": in_epochs, "in_micro_batches": in_micro_batches}
    attack(subject, "TR-RATE-005", plan, edits[mistake])


@given(plans())
def falsify_plateaus_have_the_direction_of_the_metric(subject: ModuleType, plan: Plan) -> None:
    def reverse_mode(events: Events) -> None:
        of_kind(events, "scheduler")[1]["mode"] = "max"

    attack(subject, "TR-RATE-006", plan, reverse_mode)


@given(plans(), st.booleans())
def falsify_rates_of_all_groups_are_set(subject: ModuleType, plan: Plan, is_ignored: bool) -> None:
    """Set the rate of only one group; or give a group its rate by a key that the optimizer ignores (`is_ignored`)."""

    def set_one_rate(events: Events) -> None:
        events[:] = [event for event in events if event["event"] not in ("schedule", "scheduler")]
        first(events, "optimizer").update(rates=[0.2, 0.2], decays=[0.1, 0.0], alike=True)
        for event in of_kind(events, "step"):
            event["rates"] = [0.2 / event["step"], 0.2]

    def ignore_a_rate(events: Events) -> None:
        first(events, "optimizer")["ignored_rates"] = {"0": ["learning_rate", 0.3, 0.2]}
        for event in of_kind(events, "step"):
            event["rates"] = [0.2]

    attack(subject, "TR-RATE-007", plan, ignore_a_rate if is_ignored else set_one_rate)
