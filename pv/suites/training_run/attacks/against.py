"""Attacks on the claims about two commands whose steps should be equal."""

from collections.abc import Callable
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import Events, Plan, missed, of, plans
from pv.suites.training_run.attacks.resume import compared
from pv.suites.training_run.claim import Record
from pv.suites.training_run.run import Run


def _attack(subject: ModuleType, claim: str, plan: Plan, edit: Callable[[Events], None], layers: int = 0) -> None:
    def changed(change: Callable[[Events], None]) -> Run:
        events = compared(plan)
        for forward in of(events, "forward"):
            forward.update(training_layers=layers, eval_layers=2 - layers)
        change(events)
        run: Run = subject.run_of([events], complete=True)
        return run

    def judge(other: Run) -> Record:
        first, repeat = changed(lambda events: None), changed(lambda events: None)
        comparison = subject.Comparison(kind="against", uncut=first, repeat=repeat, parts=(other,), status=0)
        compared_run = subject.Run(processes=first.processes, complete=True, comparisons=(comparison,))
        record: Record = subject.judge(compared_run, claim)[claim]
        assert record.tried, record.not_reached
        return record

    def reorder(events: Events) -> None:
        for forward in of(events, "forward"):
            for rows in forward.get("examples", []):
                rows.reverse()

    assert not judge(changed(reorder)).findings, "another order in a step is accused"
    record = judge(changed(edit))
    if not record.findings:
        correct, edited = compared(plan), compared(plan)
        edit(edited)
        raise AssertionError(missed(claim, record, correct, edited))


@given(plans(), st.booleans())
def falsify_steps_have_the_same_examples(subject: ModuleType, plan: Plan, fewer: bool) -> None:
    def other(events: Events) -> None:
        forward = [event for event in of(events, "forward") if event["grad"]][-1]
        forward["examples"] = [forward["examples"][0][:-1]] if fewer else [[1, 2, 3, 999_999]]

    _attack(subject, "TR-AGAINST-001", plan, other)


@given(plans(), st.floats(0.2, 0.9))
def falsify_steps_make_the_same_updates(subject: ModuleType, plan: Plan, factor: float) -> None:
    def smaller(events: Events) -> None:
        for step in of(events, "step"):
            step["norm"] *= factor

    _attack(subject, "TR-AGAINST-002", plan, smaller)
