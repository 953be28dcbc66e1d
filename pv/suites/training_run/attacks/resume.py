"""Attacks on the claims about runs that were interrupted and resumed.

An attack creates a continuation, which has the events of a drawn run after a save. The claim must accept the
continuation, and detect an edit of the continuation. In `_attack` the continuation is compared with two uninterrupted
runs, as by `pv check --cut`. In `_attack_restart` there is no uninterrupted run: the continuation is a second
process in the folder of traces.
"""

import pickle
from collections.abc import Callable
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import PLATEAU, TRAIN, Events, Plan, missed, numbered, of_kind, plans, traces
from pv.suites.training_run.claim import Record


def comparable_trace(plan: Plan) -> Events:
    """Return the trace of a drawn run with sums over weights and states, and hashes of rows, to compare runs by."""
    (events,) = traces(plan)
    for number, forward in enumerate(of_kind(events, "forward")):
        if forward["grad"]:
            forward["inputs"] = [number]
            forward["examples"] = [[4 * number + row for row in range(4)]]
    factor = 1.0
    for step in of_kind(events, "step"):
        number = step["step"]
        if plan.scale > 1 and not number % 3:
            factor *= 2  # the loss scale grows
        step.update(
            weights_before=[float(number - 1), 9.0],
            weights=[float(number), 9.0],
            state_before={"parameters": 8 * (number > 1), "sums": [float(number), 9.0]},
            rates=[0.1 / number],
        )
        for event in reversed(events[: events.index(step)]):  # the backward passes of this step
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


def _copy(events: Events) -> Events:
    """Return a deep copy of events, by pickle: `copy.deepcopy` takes ten times as long."""
    copy: Events = pickle.loads(pickle.dumps(events))
    return copy


def _interrupt(events: Events, saved: int, killed: int) -> tuple[Events, Events]:
    """Return the traces of a run saved after step `saved` and killed after step `killed`, and of its continuation."""
    # The traces are cut after the advance of scheduler 3. The report of the step follows it, and so belongs to the
    # continuation.
    ends = [i for i, event in enumerate(events) if event.get("scheduler") == 3 and event["event"] == "schedule"]
    save = {
        "parts": ["model", "optimizer", "scaler", "scheduler"],
        "scale": None,
        "stateful": True,
        "last_epoch": saved,
        "at": "t.py:9",
    }
    before = _copy(events[: ends[killed - 1] + 1])
    before.insert(ends[saved - 1] + 1, {"event": "save", "n": 0, "step": saved, **save})
    # The continuation constructs the same objects and restores their states. If the save was inside a pass over the
    # training data, the continuation begins a pass too.
    constructed = {"start", "optimizer", "model", "scheduler", "loader"}
    head = [e for e in events[: ends[saved - 1]] if e["event"] in constructed]
    restored = [
        {"event": "restore", "n": 0, "kind": kind, "optimizer": 1, "step": 0, "at": "t.py:8"}
        for kind in ("optimizer", "scheduler", "scaler")
    ]
    passes = [e for e in events[: ends[saved - 1]] if e["event"] == "pass" and e["loader"] == TRAIN]
    pass_ends = of_kind(events[events.index(passes[-1]) : ends[saved]], "pass_end")
    first_pass = [] if any(event["loader"] == TRAIN for event in pass_ends) else passes[-1:]
    after = _copy([*head, *restored, *first_pass, *events[ends[saved - 1] + 1 :]])
    for number, step in enumerate(of_kind(after, "step"), 1):
        step["step"] = number
    return numbered(before), numbered(after)


def _first_step_of_last_epoch(events: Events) -> int:
    """Return the number of the first step of the last epoch of a run."""
    last_pass = [event for event in of_kind(events, "pass") if event["loader"] == TRAIN][-1]
    return len(of_kind(events[: events.index(last_pass)], "step")) + 1


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
    """Assert that a claim accepts a continuation and detects an edit of its trace.

    Args:
        subject: The module of the claims.
        claim: The id of the claim.
        plan: The drawn run.
        edit: Changes the trace of the continuation.
        hint: Whether the claim gives a hint instead of a falsification.
        kind: The kind of the comparison.
        status: The exit status of the edited continuation.
    """
    uncut = comparable_trace(plan)
    saved = _first_step_of_last_epoch(uncut)
    before, after = _interrupt(uncut, saved, saved + 1)

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
    assert findings, missed(claim, record, numbered(_interrupt(uncut, saved, saved + 1)[1]), after)


def _attack_restart(subject: ModuleType, claim: str, plan: Plan, edit: Callable[[Events], None]) -> None:
    """Assert that a claim accepts a restart without an uninterrupted run, and detects an edit of its trace."""
    # The schedule of a restart is judged only if the optimizer has one schedule.
    uncut = [event for event in comparable_trace(plan) if event.get("scheduler") != PLATEAU]
    saved = _first_step_of_last_epoch(uncut) + 1
    before, after = _interrupt(uncut, saved, saved)

    def judge(events: Events) -> dict[str, Record]:
        # The second process begins with the weights of the save, and starts later than the first process.
        of_kind(events, "step")[0]["digest_before"] = float(saved)
        events[0]["time"] = 1.0
        records: dict[str, Record] = subject.judge(subject.run_of([before, events], complete=True), claim)
        return records

    records = judge(after)
    accused = {name: record.findings for name, record in records.items() if record.findings}
    assert accused == {}, f"a correct restart is accused: {accused}"
    assert records[claim].tried, f"{claim} has not tried a restart"
    edit(after)
    record = judge(numbered(after))[claim]
    assert record.findings, missed(claim, record, numbered(_interrupt(uncut, saved, saved)[1]), after)


def _drop_restores(events: Events, kind: str) -> None:
    events[:] = [event for event in events if event["event"] != "restore" or event["kind"] != kind]


@given(plans())
def falsify_resumed_run_starts_with_saved_weights(subject: ModuleType, plan: Plan) -> None:
    def use_other_weights(events: Events) -> None:
        for step in of_kind(events, "step"):
            step["weights_before"] = [step["step"] + 100.0, 9.0]

    _attack(subject, "TR-RESUME-001", plan, use_other_weights)


@given(plans(), st.booleans())
def falsify_resumed_run_has_the_rates(subject: ModuleType, plan: Plan, is_new: bool) -> None:
    def change_rates(events: Events) -> None:
        for step in of_kind(events, "step"):
            step["rates"] = [0.1 / step["step"]] if is_new else [step["rates"][0] * 1.1]

    def restart_schedule(events: Events) -> None:
        _drop_restores(events, "scheduler")
        for number, event in enumerate((e for e in of_kind(events, "schedule") if e["scheduler"] == 3), 1):
            event["epoch"] = number

    _attack(subject, "TR-RESUME-002", plan, change_rates)
    _attack_restart(subject, "TR-RESUME-002", plan, restart_schedule)


@given(plans(), st.booleans())
def falsify_resumed_run_has_the_next_examples(subject: ModuleType, plan: Plan, earlier: bool) -> None:
    uncut = comparable_trace(plan)
    saved = _first_step_of_last_epoch(uncut)
    _, shifted = _interrupt(uncut, saved - 1 if earlier else saved + 1, saved + 1)

    def shift_examples(events: Events) -> None:
        events[:] = shifted
        for number, step in enumerate(of_kind(events, "step"), saved + 1):
            step.update(weights_before=[float(number - 1), 9.0], rates=[0.1 / number])

    _, repeated = _interrupt(uncut, saved - 1, saved)

    def repeat_examples(events: Events) -> None:
        events[:] = repeated

    _attack(subject, "TR-RESUME-003", plan, shift_examples)
    _attack_restart(subject, "TR-RESUME-003", plan, repeat_examples)


@given(plans().filter(lambda plan: plan.scale > 1))
def falsify_resumed_run_has_the_scale(subject: ModuleType, plan: Plan) -> None:
    def change_scale(events: Events) -> None:
        for event in of_kind(events, "backward"):
            event["scale"] = plan.scale / 2

    def forget_scaler(events: Events) -> None:
        _drop_restores(events, "scaler")
        for event in of_kind(events, "backward"):
            event["scale"] = plan.scale

    _attack(subject, "TR-RESUME-004", plan, change_scale)
    _attack_restart(subject, "TR-RESUME-004", plan, forget_scaler)


@given(plans(), st.booleans())
def falsify_resumed_run_has_the_optimizer(subject: ModuleType, plan: Plan, is_new: bool) -> None:
    def change_state(events: Events) -> None:
        first = of_kind(events, "step")[0]
        first["state_before"] = {"parameters": 0, "sums": None} if is_new else {"parameters": 8, "sums": [0.0, 9.0]}

    def forget_optimizer(events: Events) -> None:
        _drop_restores(events, "optimizer")
        of_kind(events, "step")[0]["state_before"] = {"parameters": 0, "sums": None}

    _attack(subject, "TR-RESUME-005", plan, change_state)
    _attack_restart(subject, "TR-RESUME-005", plan, forget_optimizer)


@given(plans().filter(lambda plan: not plan.logits))
def falsify_resumed_run_has_the_losses(subject: ModuleType, plan: Plan) -> None:
    def change_losses(events: Events) -> None:
        for event in of_kind(events, "backward"):
            for loss in event["losses"]:
                loss["value"] *= 1.01

    _attack(subject, "TR-RESUME-006", plan, change_losses, hint=True)


@given(plans(), st.booleans(), st.sampled_from(["cut", "extended"]))
def falsify_resumed_run_takes_the_steps_that_were_left(
    subject: ModuleType, plan: Plan, is_longer: bool, kind: str
) -> None:
    def change_number_of_steps(events: Events) -> None:
        last = events.index(of_kind(events, "step")[-1])
        if is_longer:
            events[last + 1 : last + 1] = _copy(events[events.index(of_kind(events, "zero")[-1]) : last + 1])
        else:
            del events[last]

    _attack(subject, "TR-RESUME-007", plan, change_number_of_steps, kind=kind)


@given(plans().filter(lambda plan: not plan.logits), st.booleans())
def falsify_resumed_run_ends_with_the_weights(subject: ModuleType, plan: Plan, at_end: bool) -> None:
    def change_weights(events: Events) -> None:
        if at_end:
            of_kind(events, "end")[0]["sum"] = 8.0
        else:
            of_kind(events, "step")[-1]["weights"][0] += 0.5

    _attack(subject, "TR-RESUME-008", plan, change_weights)


@given(plans())
def falsify_interrupted_save_leaves_a_checkpoint(subject: ModuleType, plan: Plan) -> None:
    _attack(subject, "TR-RESUME-009", plan, lambda events: None, kind="save", status=1)
