"""Attacks on the claims about operands of losses."""

from collections.abc import Callable
from types import ModuleType

from hypothesis import assume, given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import Events, Plan, attack, first, of_kind, plans


def set_operands(function: str, **facts: object) -> Callable[[Events], None]:
    """Return an edit that sets the facts about the arguments of a loss function."""

    def edit(events: Events) -> None:
        first(events, "evaluation_loss").update(function=function, operands={"shapes": [[4, 9], [4]], **facts})

    return edit


NO_LOGITS = (
    ("binary_cross_entropy_with_logits", "SigmoidBackward0"),
    ("cross_entropy", "SoftmaxBackward0"),
    ("cross_entropy", "ReluBackward0"),
    ("log_softmax", "SoftmaxBackward0"),
)
"""Functions that expect logits, with the autograd node of an input that is no logits."""


@given(plans(), st.sampled_from(NO_LOGITS))
def falsify_logits_are_logits(subject: ModuleType, plan: Plan, case: tuple[str, str]) -> None:
    """Pass the output of a sigmoid, a softmax or a ReLU as logits."""
    function, node = case
    attack(subject, "TR-LOSS-001", plan, set_operands(function, made_by=node))


@given(plans(), st.booleans())
def falsify_log_probabilities(subject: ModuleType, plan: Plan, negative_target: bool) -> None:
    """Pass scores as log-probabilities, or a negative target; and normalize over the columns."""
    scores = set_operands("nll_loss", made_by="AddmmBackward0", log_sum_exp=3.0, gradients_cancel=False)
    negative = set_operands("kl_div", made_by="LogSoftmaxBackward0", log_sum_exp=0.0, lowest_target=-2.0)
    columns = {"made_by": "LogSoftmaxBackward0", "log_sum_exp": 2.0, "log_sum_exp_of_columns": 0.0}
    attack(subject, "TR-LOSS-002", plan, negative if negative_target else scores)
    attack(subject, "TR-LOSS-002", plan, set_operands("nll_loss" if negative_target else "ctc_loss", **columns))


@given(plans())
def falsify_operands_have_one_shape(subject: ModuleType, plan: Plan) -> None:
    """Compare a prediction of shape [8, 1] with a target of shape [8]."""
    edit = set_operands("mse_loss", made_by="", shapes=[[8, 1], [8]], broadcast=64, pairs=False)
    attack(subject, "TR-LOSS-003", plan, edit)


@given(plans(), st.sampled_from([(-1.0, 1.0, 5), (0.0, 255.0, 3), (0.0, 1.0, 4)]))
def falsify_targets_are_in_range(subject: ModuleType, plan: Plan, values: tuple[float, float, int]) -> None:
    """Pass targets outside of the range of the loss: `values` are the smallest and the largest one, and zeros."""
    low, high, zeros = values
    function = "soft_margin_loss" if high == 1 and low == 0 else "binary_cross_entropy_with_logits"
    targets = {"low": low, "high": high, "zeros": zeros}
    edit = set_operands(function, made_by="", reduction="mean", targets=targets)
    attack(subject, "TR-LOSS-004", plan, edit)


@given(plans(), st.integers(2, 9), st.integers(2, 9))
def falsify_flattened_in_one_order(subject: ModuleType, plan: Plan, batch: int, length: int) -> None:
    """Flatten logits [T, N, C] with labels [N, T], and view logits [N, C, T] as rows of C elements."""
    assume(batch != length)
    flat: dict[str, object] = {"shapes": [[batch * length, 11], [batch * length]], "made_by": ""}
    time_first = {**flat, "before_flattening": [[length, batch, 11], [batch, length]]}
    classes_second = {**flat, "before_flattening": [[batch, 11, length], [batch, length]]}
    attack(subject, "TR-LOSS-005", plan, set_operands("cross_entropy", **time_first))
    attack(subject, "TR-LOSS-005", plan, set_operands("cross_entropy", **classes_second))


@given(plans())
def falsify_divergence_is_a_mean_of_rows(subject: ModuleType, plan: Plan) -> None:
    """Call kl_div with reduction="mean"."""

    def divide_by_classes(events: Events) -> None:
        loss = {"function": "kl_div", "at": "t.py:4", "key": 6, "reduction": "mean", "elements": 36, "labels": 36}
        fields = {**loss, "value": 1.0, "weight": 0.1, "low": 0.1, "high": 0.1}
        first(events, "backward")["losses"] = [{**fields, "operands": {"made_by": "", "shapes": [[4, 9], [4, 9]]}}]

    attack(subject, "TR-LOSS-006", plan, divide_by_classes, hint=True)


@given(plans(), st.floats(0.1, 2.0))
def falsify_terms_have_gradients(subject: ModuleType, plan: Plan, factor: float) -> None:
    """Add a multiple of a metric to the loss as a number."""

    def add_as_number(events: Events) -> None:
        for event in of_kind(events, "backward"):
            for part in event["root"]["cut"]:
                # The number replaces the flood level of 0.5 in the drawn run.
                event["root"]["value"] += plan.scale * factor * part["value"] - 0.5 * plan.scale

    assume(not plan.logits)
    attack(subject, "TR-LOSS-007", plan, add_as_number)


@given(plans(), st.integers(1, 9))
def falsify_targets_have_no_blank(subject: ModuleType, plan: Plan, blanks: int) -> None:
    """Pass blanks as targets of a CTC loss."""
    edit = set_operands("ctc_loss", made_by="LogSoftmaxBackward0", log_sum_exp=0.0, blanks=blanks, labels=20)
    attack(subject, "TR-LOSS-008", plan, edit)
