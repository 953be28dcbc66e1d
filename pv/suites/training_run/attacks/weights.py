"""Attacks on the claims about weights of scored elements."""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

from hypothesis import assume, given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import Events, Plan, attack, of_kind, plans, traces


def reweigh(events: Events, weight: Callable[[int, int, float], float]) -> None:
    """Replace the weights of all losses.

    Args:
        events: The trace.
        weight: Returns the new weight. Gets the number of micro-batches of the step, the number of scored elements of
            the loss, and the old weight.
    """
    pending: Events = []
    for event in of_kind(events, "backward", "step"):
        if event["event"] == "backward":
            pending.append(event)
            continue
        for backward in pending:
            for loss in backward["losses"]:
                new = weight(len(pending), loss["elements"], loss["weight"])
                loss.update(weight=new, low=new, high=new)
            for loss in backward["logits"]:
                new = weight(len(pending), loss["elements"], loss["weights"]["low"])
                loss["weights"].update(low=new, high=new)
        pending = []


@given(plans())
def falsify_elements_weigh_alike(subject: ModuleType, plan: Plan) -> None:
    def take_mean_of_means(events: Events) -> None:
        reweigh(events, lambda count, elements, _: plan.scale / count / elements)

    # For each step with several micro-batches, their numbers of scored elements. These numbers must differ in at least
    # half of the steps.
    windows = [[sum(sizes) for sizes in window] for epoch in plan.epochs for window in epoch if len(window) > 1]
    unequal = [window for window in windows if max(window) > 1.1 * min(window)]
    assume(2 * len(unequal) >= len(windows) and len(unequal) >= 2)
    # The claim gives only a hint if larger micro-batches are always at the same positions, as with alternating tasks.
    assume(len({window[0] > window[1] for window in unequal}) == 2)
    longer = [window for window in unequal if len(window) > 2]
    assume(not longer or all(len({w.index(choose(w)) for w in longer}) > 1 for choose in (min, max)))
    assume(any(size % 4 for window in unequal for size in window))  # rows of different lengths
    attack(subject, "TR-WEIGHT-001", plan, take_mean_of_means)


@given(plans())
def falsify_short_window_has_its_weight(subject: ModuleType, plan: Plan) -> None:
    full = max(len(window) for window in plan.epochs[0])

    def divide_by_planned(events: Events) -> None:
        reweigh(events, lambda count, _, weight: weight * count / full)

    attack(subject, "TR-WEIGHT-002", plan, divide_by_planned)


def whole_windows(plan: Plan) -> Plan:
    """Return a plan without the short last step of every epoch."""
    return replace(plan, epochs=tuple(epoch[:-1] for epoch in plan.epochs))


@given(plans(), st.booleans(), st.booleans())
def falsify_micro_batches_are_averaged_once(subject: ModuleType, plan: Plan, twice: bool, planned: bool) -> None:
    planned = planned and not twice

    def divide(events: Events) -> None:
        for event in of_kind(events, "backward") if planned else ():
            event["planned"] = len(plan.epochs[0][0])
        reweigh(events, lambda count, _, weight: weight / count if twice else weight * count)

    attack(subject, "TR-WEIGHT-003", whole_windows(plan), divide, hint=not planned)


@given(plans())
def falsify_total_weight_is_constant(subject: ModuleType, plan: Plan) -> None:
    def add_up(events: Events) -> None:
        reweigh(events, lambda *_: plan.scale)

    totals = [sum(map(sum, window)) for epoch in plan.epochs for window in epoch if len(window) == len(epoch[0])]
    assume(max(totals) > 1.05 * min(totals))
    attack(subject, "TR-WEIGHT-004", plan, add_up, hint=True)


@given(plans(ranks=2))
def falsify_ranks_weigh_alike(subject: ModuleType, plan: Plan) -> None:
    def weigh_more(events: Events) -> None:
        reweigh(events, lambda count, elements, weight: weight * 1.5)

    attack(subject, "TR-WEIGHT-005", plan, weigh_more, ranks=2, hint=True)


@given(plans(ranks=2))
def falsify_world_size_divides_once(subject: ModuleType, plan: Plan) -> None:
    """Edit both ranks, so that their weights together sum to 1, although gradients are averaged over ranks."""
    edited = traces(plan, 2)
    for events in edited:
        reweigh(events, lambda _, __, weight: weight / 2)
    record = subject.judge(subject.run_of(edited, complete=True), "TR-WEIGHT-006")["TR-WEIGHT-006"]
    assert record.findings, "weights that sum to 1 over two ranks, before the mean over ranks, are not detected"
    assert not subject.judge(subject.run_of(traces(plan, 2), complete=True), "TR-WEIGHT-006")["TR-WEIGHT-006"].findings


@given(plans(ranks=2))
def falsify_reduced_gradients_are_averaged(subject: ModuleType, plan: Plan) -> None:
    """Edit both ranks: every rank takes a mean, and the sum over ranks is applied."""
    plan = replace(whole_windows(plan), clip=True)
    accepted = subject.judge(subject.run_of(traces(plan, 2), complete=True), "TR-WEIGHT-007")["TR-WEIGHT-007"]
    assert accepted.tried and not accepted.findings
    summed = traces(plan, 2)
    for events in summed:
        reweigh(events, lambda count, elements, _: plan.scale / count / elements)
        for event in of_kind(events, "step"):
            event["gradient"] = [2 * part for part in event["gradient"]]
    record = subject.judge(subject.run_of(summed, complete=True), "TR-WEIGHT-007")["TR-WEIGHT-007"]
    assert record.proofs, "gradients of means that are added up over ranks are not detected"
