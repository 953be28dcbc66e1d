"""Attacks on the claims about runs of several ranks."""

from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import Events, Plan, attack, numbered, of_kind, plans, traces


@given(plans(ranks=2), st.sampled_from([True, False, None]))
def falsify_ranks_have_the_same_weights(subject: ModuleType, plan: Plan, wrapped: bool | None) -> None:
    """Leave out a reduction, with or without DistributedDataParallel (`wrapped`).

    If `wrapped` is None, the ranks share a model by tensor parallelism, and the replicas of a normalization layer get
    different weights.
    """
    if wrapped is None:
        parallel = traces(plan, 2)
        for events in parallel:
            events[:] = [event for event in events if event["event"] != "ddp"]
            layers = [{"name": "norm.weight", "input": 1.5, "first": 8.0, "last": 8.25}]
            events.insert(-1, {"event": "exchange", "name": "all_reduce", "elements": 4, "step": 1, "inside": True})
            events.insert(-1, {"event": "normalizations", "layers": layers})
            numbered(events)
        for last in (8.25, 8.5):
            parallel[-1][-2]["layers"][0]["last"] = last
            record = subject.judge(subject.run_of(parallel, complete=True), "TR-RANK-001")["TR-RANK-001"]
            assert record.tried and bool(record.findings) == (last > 8.25), f"last sum on rank 1: {last}, not 8.25"
        return

    def let_weights_drift(events: Events) -> None:
        for event in of_kind(events, "step")[2:]:
            event["digest"] += 1e-3
        if not wrapped:
            events[:] = [event for event in events if event["event"] != "ddp"]

    attack(subject, "TR-RANK-001", plan, let_weights_drift, ranks=2)


@given(plans(ranks=2))
def falsify_gradients_are_reduced_before_the_step(subject: ModuleType, plan: Plan) -> None:
    """Take all steps of a rank before its gradients are reduced. Both ranks hold shards, unlike in other drawn runs."""
    sharded = traces(plan, 2)
    for events in sharded:
        for event in of_kind(events, "held"):
            event.update(shards=8, divides_otherwise=False)
    accepted = subject.judge(subject.run_of(sharded, complete=True), "TR-RANK-003")["TR-RANK-003"]
    assert accepted.tried and not accepted.findings
    for event in of_kind(sharded[-1], "step"):
        event["waiting"] = 8
    record = subject.judge(subject.run_of(sharded, complete=True), "TR-RANK-003")["TR-RANK-003"]
    assert record.findings, "steps before the reduction of their gradients are not detected"


@given(plans(ranks=2))
def falsify_ranks_have_different_examples(subject: ModuleType, plan: Plan) -> None:
    """Give the inputs of rank 0 to rank 1."""
    inputs = [event["inputs"] for event in of_kind(traces(plan, 2)[0], "forward")]

    def read_same_examples(events: Events) -> None:
        for event, values in zip(of_kind(events, "forward"), inputs, strict=True):
            event["inputs"] = values

    attack(subject, "TR-RANK-002", plan, read_same_examples, ranks=2)
