"""Claims about the operands of loss functions."""

from collections.abc import Iterator

from pv.suites.training_run.record import Record, claim
from pv.suites.training_run.run import Event, Run


def _operands(run: Run) -> Iterator[tuple[str, str, Event]]:
    """Yield line, function and the facts of the first call of every line."""
    for process in run.processes:
        for event in process.of("backward", "evaluation_loss"):
            for loss in event["losses"] if event["event"] == "backward" else [event]:
                if loss.get("operands"):
                    yield loss["at"], loss["function"], loss["operands"]


LINEAR = ("Addmm", "Mm", "Bmm", "Linear", "UnsafeView")
"""Operations whose result is no logarithm of a probability."""


@claim("TR-LOSS-001", "no cross-entropy of logits was seen")
def logits_are_logits(run: Run, record: Record) -> None:
    """A cross-entropy of the output of a softmax or sigmoid."""
    for at, function, facts in _operands(run):
        if function in ("cross_entropy", "binary_cross_entropy_with_logits"):
            record.tried += 1
            made = "Softmax" if function == "cross_entropy" else "Sigmoid"
            if facts["made_by"].startswith(made):
                name = made.lower()
                record.falsify(
                    at,
                    f"the input of {function} is the output of a {name}: {name} is applied twice",
                    f"hand over the logits, before the {name}",
                )


@claim("TR-LOSS-002", "no loss of log-probabilities was seen")
def log_probabilities_are(run: Run, record: Record) -> None:
    """`nll_loss` or `kl_div` of logits or probabilities. Unnormalized log-likelihoods may be meant, raw scores not.

    Scores are right where the normalizer is another term of the loss: the gradients of the classes then sum to 0.
    """
    for at, function, facts in _operands(run):
        if function in ("nll_loss", "kl_div") and "log_sum_exp" in facts:
            record.tried += 1
            made = facts["made_by"]
            off = facts["log_sum_exp"] > 1e-2
            alone = not facts.get("gradients_cancel", True)
            if off and alone and (made.startswith(LINEAR) or made.startswith("Softmax")):
                kind = "probabilities" if made.startswith("Softmax") else "scores of a linear layer"
                record.falsify(
                    at,
                    f"the input of {function} is {kind}: exp of a row sums to exp({facts['log_sum_exp']:.3g}), "
                    "not to 1",
                    "apply log_softmax to the scores",
                )
            elif off:
                record.hint(
                    at,
                    f"exp of a row of the input of {function} sums to exp({facts['log_sum_exp']:.3g}), not to 1",
                    "apply log_softmax to the scores",
                )
            if facts.get("lowest_target", 0) < 0:
                record.falsify(
                    at,
                    f"the target of kl_div has an element {facts['lowest_target']:.3g}: it is no probability",
                    "hand over probabilities, or log_target=True",
                )


@claim("TR-LOSS-003", "no regression loss was seen")
def operands_have_one_shape(run: Run, record: Record) -> None:
    """[N, 1] against [N]: N x N differences. Equal numbers of elements rule out a target that is meant for all.

    Pairs are meant where both have as many dimensions, the prediction was unsqueezed, or no mean is taken.
    """
    for at, function, facts in _operands(run):
        if function in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
            record.tried += 1
            one, two = facts["shapes"]
            if "broadcast" in facts and _size(one) == _size(two) < facts["broadcast"]:
                note = record.hint if facts["pairs"] else record.falsify
                note(
                    at,
                    f"{function} of shapes {one} and {two} compares each with each: {facts['broadcast']} differences",
                    "give both one shape, as by squeeze(-1)",
                )


def _size(shape: list[int]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size
