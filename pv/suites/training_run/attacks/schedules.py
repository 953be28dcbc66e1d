"""Attacks on the claims about schedules."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import TEST, Events, Plan, attack, first, of, plans


@given(plans())
def falsify_schedule_belongs_to_the_optimizer(subject: Any, plan: Plan) -> None:
    def another(events: Events) -> None:
        first(events, "scheduler")["optimizers"] = [9]
        events.append({**first(events, "held"), "optimizer": 9, "steps": 0, "shares_with": [1]})

    attack(subject, "TR-RATE-001", plan, another)


@given(plans())
def falsify_schedule_advances(subject: Any, plan: Plan) -> None:
    def never(events: Events) -> None:
        events[:] = [event for event in events if event["event"] != "schedule"]

    attack(subject, "TR-RATE-002", plan, never)


@given(plans())
def falsify_schedule_follows_the_step(subject: Any, plan: Plan) -> None:
    def before(events: Events) -> None:
        for event, step in zip(of(events, "schedule"), of(events, "step"), strict=True):
            events.remove(event)
            events.insert(events.index(step), event)

    attack(subject, "TR-RATE-003", plan, before)


@given(plans())
def falsify_schedule_advances_once_a_step(subject: Any, plan: Plan) -> None:
    def per_micro_batch(events: Events) -> None:
        events[:] = [event for event in events if event["event"] != "schedule"]
        for event in of(events, "backward"):
            place = next(i for i, other in enumerate(events) if other is event)
            events.insert(place + 1, {"event": "schedule", "scheduler": 3, "explicit": False, "at": "t.py:5"})

    attack(subject, "TR-RATE-004", plan, per_micro_batch)


@given(plans(), st.integers(0, 2))
def falsify_schedule_ends_with_the_run(subject: Any, plan: Plan, kind: int) -> None:
    def in_epochs(events: Events) -> None:
        first(events, "scheduler")["planned"]["T_max"] = 3

    def once(events: Events) -> None:
        first(events, "scheduler").update(kind="OneCycleLR")
        keep = of(events, "schedule")[len(plan.epochs[0]) - 1 :: len(plan.epochs[0])]
        events[:] = [e for e in events if e["event"] != "schedule" or any(e is other for other in keep)]

    def in_micro_batches(events: Events) -> None:
        full = max(len(window) for window in plan.epochs[0])
        first(events, "scheduler")["planned"]["T_max"] *= full
        evaluation = ("evaluation_loss", "mode")
        training = [e for e in events if e.get("loader") != TEST and e["event"] not in evaluation]
        events[:] = [e for e in training if e["event"] != "forward" or e["grad"]]

    if kind == 2:
        plan = replace(plan, epochs=(plan.epochs[0],) * 3)
    attack(subject, "TR-RATE-005", plan, (once, in_micro_batches, in_epochs)[kind])
