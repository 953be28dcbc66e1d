"""Attacks on the claims about reported numbers."""

import math
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import TEST_ROWS, Events, Plan, attack, of, plans, evaluated_losses


def reported(number: Callable[[list[float]], float]) -> Callable[[Events], None]:
    """Return an edit after which this number of the batches' losses is reported."""

    def edit(events: Events) -> None:
        for epoch, event in enumerate(of(events, "report"), 1):
            event["numbers"]["loss"] = f"{number(evaluated_losses(epoch)):.5f}"

    return edit


@given(plans(), st.sampled_from(["mean", "perplexity", "planned"]))
def falsify_reported_mean_is_over_elements(subject: Any, plan: Plan, kind: str) -> None:
    def number(values: list[float]) -> float:
        if kind == "planned":
            rows = zip(TEST_ROWS, values, strict=True)
            return sum(count * value for count, value in rows) / (len(values) * TEST_ROWS[0])
        mean = sum(values) / len(values)
        return math.exp(mean) if kind == "perplexity" else mean

    attack(subject, "TR-EVAL-001", plan, reported(number))


@given(plans(), st.booleans())
def falsify_reported_mean_is_over_batches(subject: Any, plan: Plan, perplexity: bool) -> None:
    attack(
        subject,
        "TR-EVAL-002",
        plan,
        reported(lambda values: math.exp(values[-1]) if perplexity else values[-1]),
    )


@given(plans(), st.booleans())
def falsify_reported_mean_is_a_mean(subject: Any, plan: Plan, total: bool) -> None:
    attack(
        subject,
        "TR-EVAL-003",
        plan,
        reported(lambda values: sum(values) if total else sum(map(math.exp, values)) / len(values)),
        hint=True,
    )
