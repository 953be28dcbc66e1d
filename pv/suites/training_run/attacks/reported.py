"""Attacks on the claims about reported numbers."""

import math
from collections.abc import Callable
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import (
    TEST_ROWS,
    Events,
    Plan,
    attack,
    evaluated_losses,
    of_kind,
    plans,
    window_loss,
)


def report(number: Callable[[list[float]], float]) -> Callable[[Events], None]:
    """Return an edit that replaces the printed loss of an evaluation by a function of the losses of its batches.

    Args:
        number: The function: it gets the losses of the batches, and returns the number to report.
    """

    def edit(events: Events) -> None:
        reports = [event for event in of_kind(events, "report") if event["by"] == "print"]
        for epoch, event in enumerate(reports, 1):
            event["numbers"]["loss"] = f"{number(evaluated_losses(epoch)):.5f}"

    return edit


@given(plans(), st.sampled_from(["mean", "perplexity", "planned"]))
def falsify_reported_mean_is_over_elements(subject: ModuleType, plan: Plan, kind: str) -> None:
    """Report the mean of the means of batches, its exponential, or the sum divided by the planned size of batches."""

    def number(values: list[float]) -> float:
        if kind == "planned":
            rows = zip(TEST_ROWS, values, strict=True)
            return sum(count * value for count, value in rows) / (len(values) * TEST_ROWS[0])
        mean = sum(values) / len(values)
        return math.exp(mean) if kind == "perplexity" else mean

    attack(subject, "TR-EVAL-001", plan, report(number))


@given(plans(), st.booleans())
def falsify_reported_mean_is_over_batches(subject: ModuleType, plan: Plan, perplexity: bool) -> None:
    """Report the value of the last batch, or its exponential."""
    attack(
        subject,
        "TR-EVAL-002",
        plan,
        report(lambda values: math.exp(values[-1]) if perplexity else values[-1]),
    )


@given(plans().filter(lambda plan: len(plan.epochs) > 2), st.booleans(), st.sampled_from(["", "shared", "kept"]))
def falsify_reported_mean_starts_anew(subject: ModuleType, plan: Plan, perplexity: bool, metric: str) -> None:
    """Report means over all evaluations so far; or never reset a metric.

    Args:
        subject: The claims.
        plan: The correct run.
        perplexity: Whether the exponential of the mean is reported.
        metric: Use a metric for the training and an evaluation ("shared"), or for all evaluations ("kept").
    """

    def edit(events: Events) -> None:
        if metric:
            for epoch, event in enumerate(of_kind(events, "metric")):
                accumulated = {"evaluated": [4] * (epoch + 1), "computed": epoch}
                event.update({"trained": 9} if metric == "shared" else accumulated)
            return
        total = 0.0
        for epoch, event in enumerate([event for event in of_kind(events, "report") if event["by"] == "print"], 1):
            rows = zip(TEST_ROWS, evaluated_losses(epoch), strict=True)
            total += sum(count * value for count, value in rows) / sum(TEST_ROWS)
            mean = total / epoch
            event["numbers"]["loss"] = f"{math.exp(mean) if perplexity else mean:.7f}"

    attack(subject, "TR-EVAL-004", plan, edit)


@given(plans(ranks=2), st.booleans())
def falsify_reported_mean_is_over_ranks(subject: ModuleType, plan: Plan, of_means: bool) -> None:
    """Report the mean over the part of rank 1, or the mean of the means of both ranks, whose parts are unequal."""

    def edit(events: Events) -> None:
        losses = iter(of_kind(events, "evaluation_loss"))
        for epoch, event in enumerate([event for event in of_kind(events, "report") if event["by"] == "print"], 1):
            means = [
                sum(map(math.prod, zip(TEST_ROWS, evaluated_losses(epoch, rank), strict=True))) / sum(TEST_ROWS)
                for rank in range(2)
            ]
            for _ in TEST_ROWS:  # this rank scores a third of the other one's elements in each batch
                loss = next(losses)
                loss.update(elements=loss["elements"] / 3, labels=loss["labels"] / 3)
            event["numbers"]["loss"] = f"{sum(means) / 2 if of_means else means[1]:.5f}"

    attack(subject, "TR-EVAL-005", plan, edit, ranks=2, hint=True)


@given(plans(), st.booleans())
def falsify_reported_mean_is_a_mean(subject: ModuleType, plan: Plan, total: bool) -> None:
    """Report the sum of the means of batches (`total`), or the mean of the perplexities of batches."""
    attack(
        subject,
        "TR-EVAL-003",
        plan,
        report(lambda values: sum(values) if total else sum(map(math.exp, values)) / len(values)),
        hint=True,
    )


@given(plans(least=3).filter(lambda plan: not plan.logits))
def falsify_reported_loss_is_not_divided(subject: ModuleType, plan: Plan) -> None:
    """Divide every loss by the number of micro-batches, and report the divided loss."""

    def edit(events: Events) -> None:
        passes: Events = []
        for event in events:
            if event["event"] == "backward":
                passes.append(event)
            elif event["event"] == "step":
                count, step = len(passes), event["step"]
                for loss in (loss for backward in passes for loss in backward["losses"]):
                    loss.update(dict.fromkeys(("weight", "low", "high"), plan.scale / loss["elements"] / count))
                passes = []
            elif event["event"] == "report" and event["by"] == "add_scalar":
                event["numbers"]["loss"] = f"{window_loss(step) / count:.5f}"

    attack(subject, "TR-LOG-001", plan, edit)


@given(plans().filter(lambda plan: plan.clip))
def falsify_reported_norm_is_before_clipping(subject: ModuleType, plan: Plan) -> None:
    """Report the norm after clipping at 1. The first norm is below the limit, so that the reports vary."""

    def edit(events: Events) -> None:
        norm = 0.0
        for event in events:
            if event["event"] == "clip":
                event["norm"] = norm = 0.4 if not norm else 3.0
            elif event["event"] == "step":
                event["norm"] = min(norm, 1.0)
            elif event["event"] == "report" and event["by"] == "add_scalar":
                event["numbers"]["norm"] = f"{min(norm, 1.0):.5f}"

    attack(subject, "TR-LOG-002", plan, edit, hint=True)


@given(plans(), st.booleans())
def falsify_reported_sum_is_divided_by_its_batches(subject: ModuleType, plan: Plan, by_examples: bool) -> None:
    """Divide the sum of the means of batches by the number of examples, or of batches of the training loader."""
    divisor = sum(TEST_ROWS) if by_examples else sum(map(len, plan.epochs[0]))
    attack(subject, "TR-EVAL-006", plan, report(lambda values: sum(values) / divisor))


@given(plans(), st.integers(10, 400))
def falsify_sums_of_losses_have_no_graph(subject: ModuleType, plan: Plan, terms: int) -> None:
    """Add up losses without detaching them."""

    def keep_graph(events: Events) -> None:
        events.append({"event": "history", "terms": terms, "at": "t.py:10"})

    attack(subject, "TR-LOG-003", plan, keep_graph, hint=True)
