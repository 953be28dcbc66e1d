"""Attacks on the claims about operands of losses."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import Events, Plan, attack, first, plans


def operands(function: str, **facts: Any) -> Callable[[Events], None]:
    """Return an edit of what the observer notes of the arguments of a loss function."""

    def edit(events: Events) -> None:
        first(events, "evaluation_loss").update(function=function, operands={"shapes": [[4, 9], [4]], **facts})

    return edit


@given(plans(), st.booleans())
def falsify_logits_are_logits(subject: Any, plan: Plan, binary: bool) -> None:
    function = "binary_cross_entropy_with_logits" if binary else "cross_entropy"
    edit = operands(function, made_by="SigmoidBackward0" if binary else "SoftmaxBackward0")
    attack(subject, "TR-LOSS-001", plan, edit)


@given(plans(), st.booleans())
def falsify_log_probabilities(subject: Any, plan: Plan, target: bool) -> None:
    scores = operands("nll_loss", made_by="AddmmBackward0", log_sum_exp=3.0, gradients_cancel=False)
    negative = operands("kl_div", made_by="LogSoftmaxBackward0", log_sum_exp=0.0, lowest_target=-2.0)
    attack(subject, "TR-LOSS-002", plan, negative if target else scores)


@given(plans())
def falsify_operands_have_one_shape(subject: Any, plan: Plan) -> None:
    edit = operands("mse_loss", made_by="", shapes=[[8, 1], [8]], broadcast=64, pairs=False)
    attack(subject, "TR-LOSS-003", plan, edit)
