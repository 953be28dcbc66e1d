"""Attacks on the claims about runs that were interrupted and resumed.

A drawn run has two uninterrupted runs, and one that is interrupted and continued: the continuation has the events of
the same run from a save on. Or there is no uninterrupted run, and the continuation is a second process in the folder.
"""

import pickle
from collections.abc import Callable
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import PLATEAU, TRAIN, Events, Plan, missed, numbered, of, plans, traces
from pv.suites.training_run.claim import Record


def compared(plan: Plan) -> Events:
    """Return the trace of a run for comparisons: it has sums over weights and state, and hashes of rows."""
    (events,) = traces(plan)
    for number, forward in enumerate(of(events, "forward")):
        if forward["grad"]:
            forward["inputs"] = [number]
            forward["examples"] = [[4 * number + row for row in range(4)]]
    factor = 1.0
    for step in of(events, "step"):
        number = step["step"]
        if plan.scale > 1 and not number % 3:
            factor *= 2
        step.update(
            weights_before=[float(number - 1), 9.0],
            weights=[float(number), 9.0],
            state_before={"parameters": 8 * (number > 1), "sums": [float(number), 9.0]},
            rates=[0.1 / number],
        )
        previous = events.index(step)
        for event in reversed(events[:previous]):
            if event["event"] == "step":
                break
            if event["event"] == "backward" and event["scale"]:
                event["scale"] *= factor
                for loss in event["losses"]:
                    loss.update({key: loss[key] * factor for key in ("weight", "low", "high")})
                for entry in event["logits"]:
                    entry["weights"].update({key: entry["weights"][key] * factor for key in ("low", "high")})
    events.append({"event": "end", "n": len(events), "optimizer": 1, "steps": step["step"], "sum": 7.0})
    return events


def _copied(events: Events) -> Events:
    """Return a deep copy of events, by pickle: `copy.deepcopy` takes ten times as long."""
    copied: Events = pickle.loads(pickle.dumps(events))
    return copied


def _interrupted(events: Events, saved: int, killed: int) -> tuple[Events, Events]:
    """Return the traces of a run that saves after a step and is killed after a later one, and of its continuation."""
    ends = [
        position
        for position, event in enumerate(events)
        if event.get("scheduler") == 3 and event["event"] == "schedule"
    ]
    place = {
        "parts": ["model", "optimizer", "scaler", "scheduler"],
        "scale": None,
        "stateful": True,
        "last_epoch": saved,
        "at": "t.py:9",
    }
    before = _copied(events[: ends[killed - 1] + 1])
    before.insert(ends[saved - 1] + 1, {"event": "save", "n": 0, "step": saved, **place})
    kinds = {"optimizer", "model", "scheduler", "loader"}
    head = [e for e in events[: ends[saved - 1]] if e["event"] in {"start", *kinds}]
    restored = [
        {"event": "restore", "n": 0, "kind": kind, "optimizer": 1, "step": 0, "at": "t.py:8"}
        for kind in ("optimizer", "scheduler", "scaler")
    ]
    passes = [e for e in events[: ends[saved - 1]] if e["event"] == "pass" and e["loader"] == TRAIN]
    since = of(events[events.index(passes[-1]) : ends[saved]], "pass_end")
    middle = [] if any(event["loader"] == TRAIN for event in since) else passes[-1:]
    after = _copied([*head, *restored, *middle, *events[ends[saved - 1] + 1 :]])
    for number, step in enumerate(of(after, "step"), 1):
        step["step"] = number
    return numbered(before), numbered(after)


def _place(events: Events) -> int:
    """Return the number of steps of a run up to the first step of its last epoch."""
    last = events.index([event for event in of(events, "pass") if event["loader"] == TRAIN][-1])
    return len(of(events[:last], "step")) + 1


def _attack(
    subject: ModuleType,
    claim: str,
    plan: Plan,
    edit: Callable[[Events], None],
    *,
    hint: bool = False,
    kind: str = "cut",
    status: int = 0,
) -> None:
    """Assert that a claim accepts a continuation and detects an edit of its trace."""
    uncut = compared(plan)
    saved = _place(uncut)
    before, after = _interrupted(uncut, saved, saved + 1)

    run = subject.run_of([uncut], complete=True)
    killed = subject.run_of([before], complete=False)

    def judge(continuation: Events, status: int) -> dict[str, Record]:
        parts = (killed, subject.run_of([continuation], complete=False))
        comparisons = [
            subject.Comparison(
                kind=name, uncut=run, repeat=None if name == "extended" else run, parts=parts, status=code
            )
            for name, code in {"cut": 0, kind: status}.items()
        ]
        whole = subject.Run(processes=run.processes, complete=True, comparisons=tuple(comparisons))
        records: dict[str, Record] = subject.judge(whole, claim)
        return records

    accused = {name: record.findings for name, record in judge(after, 0).items() if record.findings}
    assert accused == {}, f"a correct continuation is accused: {accused}"
    edit(after)
    record = judge(numbered(after), status)[claim]
    findings = [finding for finding in record.findings if finding.hint == hint]
    assert findings, missed(claim, record, numbered(_interrupted(uncut, saved, saved + 1)[1]), after)


def _attack_restart(subject: ModuleType, claim: str, plan: Plan, edit: Callable[[Events], None]) -> None:
    """Assert that a claim accepts a restart without an uninterrupted run, and detects an edit of its trace."""
    # The schedule of a restart is judged only if the optimizer has one schedule.
    uncut = [event for event in compared(plan) if event.get("scheduler") != PLATEAU]
    saved = _place(uncut) + 1
    before, after = _interrupted(uncut, saved, saved)

    def judge(events: Events) -> dict[str, Record]:
        of(events, "step")[0]["digest_before"] = float(saved)
        events[0]["time"] = 1.0
        records: dict[str, Record] = subject.judge(subject.run_of([before, events], complete=True), claim)
        return records

    records = judge(after)
    accused = {name: record.findings for name, record in records.items() if record.findings}
    assert accused == {}, f"a correct restart is accused: {accused}"
    assert records[claim].tried, f"{claim} has not tried a restart"
    edit(after)
    record = judge(numbered(after))[claim]
    assert record.findings, missed(claim, record, numbered(_interrupted(uncut, saved, saved)[1]), after)


def _forget(events: Events, kind: str) -> None:
    events[:] = [event for event in events if event["event"] != "restore" or event["kind"] != kind]


@given(plans())
def falsify_resumed_run_starts_with_saved_weights(subject: ModuleType, plan: Plan) -> None:
    def anew(events: Events) -> None:
        for step in of(events, "step"):
            step["weights_before"] = [step["step"] + 100.0, 9.0]

    _attack(subject, "TR-RESUME-001", plan, anew)


@given(plans(), st.booleans())
def falsify_resumed_run_goes_on_with_the_rates(subject: ModuleType, plan: Plan, anew: bool) -> None:
    def rates(events: Events) -> None:
        for step in of(events, "step"):
            step["rates"] = [0.1 / step["step"]] if anew else [step["rates"][0] * 1.1]

    def schedule(events: Events) -> None:
        _forget(events, "scheduler")
        for number, event in enumerate((e for e in of(events, "schedule") if e["scheduler"] == 3), 1):
            event["epoch"] = number

    _attack(subject, "TR-RESUME-002", plan, rates)
    _attack_restart(subject, "TR-RESUME-002", plan, schedule)


@given(plans(), st.booleans())
def falsify_resumed_run_goes_on_with_the_next_examples(subject: ModuleType, plan: Plan, back: bool) -> None:
    uncut = compared(plan)
    saved = _place(uncut)
    _, other = _interrupted(uncut, saved - 1 if back else saved + 1, saved + 1)

    def shifted(events: Events) -> None:
        events[:] = other
        for number, step in enumerate(of(events, "step"), saved + 1):
            step.update(weights_before=[float(number - 1), 9.0], rates=[0.1 / number])

    _, again = _interrupted(uncut, saved - 1, saved)

    def begin_again(events: Events) -> None:
        events[:] = again

    _attack(subject, "TR-RESUME-003", plan, shifted)
    _attack_restart(subject, "TR-RESUME-003", plan, begin_again)


@given(plans().filter(lambda plan: plan.scale > 1))
def falsify_resumed_run_goes_on_with_the_scale(subject: ModuleType, plan: Plan) -> None:
    def anew(events: Events) -> None:
        for event in of(events, "backward"):
            event["scale"] = plan.scale / 2

    def forgotten(events: Events) -> None:
        _forget(events, "scaler")
        for event in of(events, "backward"):
            event["scale"] = plan.scale

    _attack(subject, "TR-RESUME-004", plan, anew)
    _attack_restart(subject, "TR-RESUME-004", plan, forgotten)


@given(plans(), st.booleans())
def falsify_resumed_run_goes_on_with_the_optimizer(subject: ModuleType, plan: Plan, anew: bool) -> None:
    def state(events: Events) -> None:
        first = of(events, "step")[0]
        first["state_before"] = {"parameters": 0, "sums": None} if anew else {"parameters": 8, "sums": [0.0, 9.0]}

    def forgotten(events: Events) -> None:
        _forget(events, "optimizer")
        of(events, "step")[0]["state_before"] = {"parameters": 0, "sums": None}

    _attack(subject, "TR-RESUME-005", plan, state)
    _attack_restart(subject, "TR-RESUME-005", plan, forgotten)


@given(plans().filter(lambda plan: not plan.logits))
def falsify_resumed_run_has_the_losses(subject: ModuleType, plan: Plan) -> None:
    def dropout(events: Events) -> None:
        for event in of(events, "backward"):
            for loss in event["losses"]:
                loss["value"] *= 1.01

    _attack(subject, "TR-RESUME-006", plan, dropout, hint=True)


@given(plans(), st.booleans(), st.sampled_from(["cut", "extended"]))
def falsify_resumed_run_takes_the_steps_that_were_left(
    subject: ModuleType, plan: Plan, is_longer: bool, kind: str
) -> None:
    def count(events: Events) -> None:
        last = events.index(of(events, "step")[-1])
        if is_longer:
            events[last + 1 : last + 1] = _copied(events[events.index(of(events, "zero")[-1]) : last + 1])
        else:
            del events[last]

    _attack(subject, "TR-RESUME-007", plan, count, kind=kind)


@given(plans().filter(lambda plan: not plan.logits), st.booleans())
def falsify_resumed_run_ends_with_the_weights(subject: ModuleType, plan: Plan, at_end: bool) -> None:
    def other(events: Events) -> None:
        if at_end:
            of(events, "end")[0]["sum"] = 8.0
        else:
            of(events, "step")[-1]["weights"][0] += 0.5

    _attack(subject, "TR-RESUME-008", plan, other)


@given(plans())
def falsify_interrupted_save_leaves_a_checkpoint(subject: ModuleType, plan: Plan) -> None:
    _attack(subject, "TR-RESUME-009", plan, lambda events: None, kind="save", status=1)
