"""Attacks on the claims about clipping and loss scaling."""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import Events, Plan, attack, numbered, of_kind, plans


def move_clips(events: Events, place: Callable[[Events, int, int], int]) -> None:
    """Move every clipping.

    Args:
        events: The trace.
        place: Returns the new position of a clipping. Its arguments are the events, and the positions of the step and
            of the first backward pass before it, in the order (events, backward, step).
    """
    start = 0
    for clip in of_kind(events, "clip"):
        events.remove(clip)
        positions = [i for i, event in enumerate(events) if event["event"] == "backward" and i >= start]
        step = next(i for i, event in enumerate(events) if event["event"] == "step" and i > positions[0])
        events.insert(place(events, positions[0], step), clip)
        start = step + 1
    numbered(events)


@given(plans(), st.booleans())
def falsify_clipping_comes_last(subject: ModuleType, plan: Plan, after_step: bool) -> None:
    plan = replace(plan, epochs=tuple(epoch[:-1] for epoch in plan.epochs), scale=1.0, clip=True)

    def move_clipping(events: Events) -> None:
        move_clips(events, lambda _, backward, step: step + 1 if after_step else backward + 1)
        for event in of_kind(events, "backward"):
            event["reached"]["1"]["onto_clipped"] = 8 * (event["reached"]["1"]["left_over"] > 0)

    attack(subject, "TR-CLIP-001", plan, move_clipping)


@given(plans())
def falsify_clipped_gradient_is_unscaled(subject: ModuleType, plan: Plan) -> None:
    def before_unscale(events: Events) -> None:
        for event in of_kind(events, "clip"):
            event["scale"] = 1024.0

    attack(subject, "TR-CLIP-002", replace(plan, scale=1024.0, clip=True), before_unscale)


@given(plans(), st.sampled_from(["exhausted", "other model", "early"]))
def falsify_clipping_covers_parameters(subject: ModuleType, plan: Plan, mistake: str) -> None:
    """Clip with an exhausted generator of parameters, with the parameters of another model, or before the backward."""

    def clip_nothing(events: Events) -> None:
        uncovered = {"covers": {"1": [0, 0]}, "with_gradient": 0, "norm": 0.0}
        exhausted = {"parameters": 0, "used_up": True, "covers": {"1": [0, 8]}}
        for event in of_kind(events, "clip"):
            event.update({"exhausted": exhausted, "other model": uncovered | {"held": 0}, "early": uncovered}[mistake])

    attack(subject, "TR-CLIP-003", replace(plan, clip=True), clip_nothing)


@given(plans(ranks=2))
def falsify_shards_are_clipped_together(subject: ModuleType, plan: Plan) -> None:
    def clip_by_own_norm(events: Events) -> None:
        for event in of_kind(events, "clip"):
            event["norm"] *= 1.5

    attack(subject, "TR-CLIP-004", replace(plan, clip=True), clip_by_own_norm, ranks=2)


@given(plans())
def falsify_applied_gradient_is_unscaled(subject: ModuleType, plan: Plan) -> None:
    def bypass_scaler(events: Events) -> None:
        events[:] = [event for event in events if event["event"] != "unscale"]
        for event in of_kind(events, "step"):
            event["by_scaler"] = False

    attack(subject, "TR-SCALE-001", replace(plan, scale=1024.0, clip=False), bypass_scaler)
