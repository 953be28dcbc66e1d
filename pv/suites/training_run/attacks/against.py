"""Attacks on the claims about two commands whose steps should be equal."""

from collections.abc import Callable
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import Events, Plan, missed, of_kind, plans
from pv.suites.training_run.attacks.resume import comparable_trace
from pv.suites.training_run.claim import Record
from pv.suites.training_run.run import Run


def _attack(subject: ModuleType, claim: str, plan: Plan, edit: Callable[[Events], None]) -> None:
    """Assert that a claim accepts another order of the rows in a step, and detects an edit of the second trace.

    Args:
        subject: The module of the claims.
        claim: The id of the claim.
        plan: The drawn run.
        edit: Changes the trace of the second command.
    """

    def run_with(change: Callable[[Events], None]) -> Run:
        events = comparable_trace(plan)
        for forward in of_kind(events, "forward"):
            # With dropout or normalization in training mode, the gradients are not compared.
            forward.update(training_layers=0, eval_layers=2)
        change(events)
        run: Run = subject.run_of([events], complete=True)
        return run

    def judge(second: Run) -> Record:
        first, repeat = run_with(lambda events: None), run_with(lambda events: None)
        comparison = subject.Comparison(kind="against", uncut=first, repeat=repeat, parts=(second,), status=0)
        compared_run = subject.Run(processes=first.processes, complete=True, comparisons=(comparison,))
        record: Record = subject.judge(compared_run, claim)[claim]
        assert record.tried, record.not_reached
        return record

    def reverse_rows(events: Events) -> None:
        for forward in of_kind(events, "forward"):
            for rows in forward.get("examples", []):
                rows.reverse()

    assert not judge(run_with(reverse_rows)).findings, "another order in a step is accused"
    record = judge(run_with(edit))
    if not record.findings:
        correct, edited = comparable_trace(plan), comparable_trace(plan)
        edit(edited)
        raise AssertionError(missed(claim, record, correct, edited))


@given(plans(), st.booleans())
def falsify_steps_have_the_same_examples(subject: ModuleType, plan: Plan, fewer: bool) -> None:
    """Leave a row out of the last micro-batch of the second command (`fewer`), or replace its rows."""

    def change_rows(events: Events) -> None:
        forward = [event for event in of_kind(events, "forward") if event["grad"]][-1]
        forward["examples"] = [forward["examples"][0][:-1]] if fewer else [[1, 2, 3, 999_999]]

    _attack(subject, "TR-AGAINST-001", plan, change_rows)


@given(plans(), st.floats(0.2, 0.9))
def falsify_steps_make_the_same_updates(subject: ModuleType, plan: Plan, factor: float) -> None:
    """Multiply the gradients of the second command by a factor below 1."""

    def shorten_gradients(events: Events) -> None:
        for step in of_kind(events, "step"):
            step["norm"] *= factor

    _attack(subject, "TR-AGAINST-002", plan, shorten_gradients)
