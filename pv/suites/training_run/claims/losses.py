"""Claims about the operands of loss functions."""

import math
from collections import defaultdict
from collections.abc import Iterator

from pv.suites.training_run.claim import Record, claim, is_finite
from pv.suites.training_run.run import Event, Process, Run


def _operands(run: Run) -> Iterator[tuple[str, str, Event]]:
    """Yield, for the first call of a loss at every line: the line, the name of the function, and its recorded facts."""
    for process in run.processes:
        for event in process.of("backward", "evaluation_loss", "operands"):
            for loss in event["losses"] if event["event"] == "backward" else [event]:
                if loss.get("operands"):
                    yield loss["at"], loss["function"], loss["operands"]


ROUNDING = 1.2e-7
"""Relative rounding error of float32."""
LINEAR = ("Addmm", "Mm", "Bmm", "Linear", "UnsafeView")
"""Beginnings of the names of autograd nodes whose results are not log-probabilities."""


@claim("TR-LOSS-001", "no cross-entropy of logits was seen")
def inputs_are_logits(run: Run, record: Record) -> None:
    """A cross-entropy gets the output of a softmax, a sigmoid or a ReLU as its logits.

    A `log_softmax` of a softmax, or a sigmoid of a sigmoid, outside of a cross-entropy falsifies the claim as well.

    The `grad_fn` of the input shows its last operation. No correct program computes the softmax of a softmax: with
    inputs between 0 and 1, the loss cannot approach 0. After a ReLU, a class whose score is below 0 gets no gradient,
    not even where it is the label. A network that pools its scores after the ReLU, as SqueezeNet does, has another last
    operation.
    """
    for at, function, facts in _operands(run):
        if function in ("cross_entropy", "binary_cross_entropy_with_logits", "log_softmax", "sigmoid"):
            record.tried += 1
            layer = "Sigmoid" if function in ("binary_cross_entropy_with_logits", "sigmoid") else "Softmax"
            if function == "cross_entropy" and facts["made_by"].startswith("ReluBackward"):
                record.falsify(
                    at,
                    "the input of cross_entropy is the output of a ReLU: scores below 0 become 0 and get no gradient",
                    "pass the logits, without the ReLU after the last layer",
                )
            if function == "cross_entropy" and facts["made_by"].startswith("SigmoidBackward"):
                record.falsify(
                    at,
                    "the input of cross_entropy is the output of a sigmoid: scores lie between 0 and 1, so that no "
                    "class can get a large probability",
                    "pass the logits, without sigmoid",
                )
            if facts["made_by"].startswith(layer):
                name = layer.lower()
                record.falsify(
                    at,
                    f"the input of {function} is the output of a {name}, and {function} applies {name} again",
                    f"pass the logits, without {name}",
                )


@claim("TR-LOSS-002", "no loss of log-probabilities was seen")
def inputs_are_log_probabilities(run: Run, record: Record) -> None:
    """`nll_loss`, `kl_div` or `ctc_loss` gets logits or probabilities in place of log-probabilities.

    Unnormalized log-likelihoods may be intended, but scores of a linear layer are not log-likelihoods. Scores are
    correct if another term of the loss contains the normalizer (the logarithm of the sum of their exponentials): the
    gradients of the classes then sum to 0.

    Probabilities may sum to 1 over the wrong dimension. In `kl_div`, a sum over the rows of the batch may be intended
    (retrieval in both directions, relations between examples). This is ruled out if a classification loss gets an input
    of the same shape, and no `kl_div` of the run has probabilities that sum to 1 over the columns.

    A target of `kl_div` with a negative element is no probability distribution.
    """
    classified = [
        facts["shapes"][0] for _, function, facts in _operands(run) if function in ("cross_entropy", "nll_loss")
    ]
    has_normalized_rows = any(
        function == "kl_div" and facts.get("log_sum_exp", 1.0) <= 1e-2 for _, function, facts in _operands(run)
    )
    for at, function, facts in _operands(run):
        if function in ("nll_loss", "kl_div", "ctc_loss") and "log_sum_exp" in facts:
            record.tried += 1
            operation = facts["made_by"]
            # Half precision changes a sum of probabilities by less than 1 %.
            is_unnormalized = facts["log_sum_exp"] > 1e-2
            has_no_normalizer = not facts.get("gradients_cancel", function != "ctc_loss")
            # If some classes are selected from log-probabilities, neither rows nor columns sum to 1.
            columns = facts.get("log_sum_exp_of_columns", 1.0) < 1e-3 and operation.startswith("LogSoftmax")
            if function == "kl_div":
                columns = columns and not has_normalized_rows and facts["shapes"][0] in classified
            if is_unnormalized and columns:
                sums = "time or the examples" if function == "ctc_loss" else "the examples of the batch"
                record.falsify(
                    at,
                    f"the probabilities that {function} gets sum to 1 over {sums}, not over the classes: log_softmax "
                    "was applied over the wrong dimension",
                    f"normalize over the classes: log_softmax(scores, dim={-1 if function == 'ctc_loss' else 1})",
                )
            elif is_unnormalized:
                sure = has_no_normalizer and operation.startswith((*LINEAR, "Softmax"))
                kind = "probabilities" if operation.startswith("Softmax") else "scores of a linear layer"
                (record.falsify if sure else record.hint)(
                    at,
                    f"the input of {function} is {f'{kind}, not log-probabilities' if sure else 'not normalized'}: the "
                    f"exponentials of a row sum to exp({facts['log_sum_exp']:.3g}), not to 1",
                    "apply log_softmax to the scores",
                )
            if facts.get("lowest_target", 0) < 0:
                record.falsify(
                    at,
                    f"the target of kl_div has a negative element, {facts['lowest_target']:.3g}, so its elements are "
                    "not probabilities",
                    "pass probabilities as the target, or log_target=True for log-probabilities",
                )


@claim("TR-LOSS-003", "no regression loss was seen")
def operands_have_one_shape(run: Run, record: Record) -> None:
    """A prediction of shape [N, 1] and a target of shape [N] are broadcast to N x N differences.

    Both have N elements, which rules out one target for all predictions. All pairs may be intended, and give a hint, if
    both operands have the same number of dimensions, the prediction was unsqueezed, or no mean is taken.

    A handwritten mean of squared or absolute differences is not judged if the pairs have weights, or if differences
    between predictions are computed too, as in an energy distance.
    """
    for at, function, facts in _operands(run):
        if function == "difference":
            output, difference = facts["shapes"]
            record.tried += 1
            if not facts["pairwise"]:
                record.falsify(
                    at,
                    f"an output of shape {output} minus a tensor without gradient has the shape {difference}: the loss "
                    f"is the mean over {difference[0] * difference[1]} differences, between every prediction and every "
                    "target",
                    "give both operands the same shape, for example with squeeze(-1)",
                )
        if function in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
            record.tried += 1
            # [N, 1] and [N] have equal numbers of elements, and broadcast to N x N.
            prediction, target = facts["shapes"]
            if "broadcast" in facts and math.prod(prediction) == math.prod(target) < facts["broadcast"]:
                add = record.hint if facts["pairs"] else record.falsify
                add(
                    at,
                    f"{function} broadcasts the shapes {prediction} and {target}: it averages {facts['broadcast']} "
                    "differences, between every prediction and every target",
                    "give both operands the same shape, for example with squeeze(-1)",
                )


RANGES = {"binary_cross_entropy": (-0.5, 1.5), "binary_cross_entropy_with_logits": (-0.5, 1.5)}
"""Range of probabilities as targets, with room for noisy targets of discriminators, such as 0.7 to 1.2."""
SIGNS = ("soft_margin_loss", "hinge_embedding_loss", "margin_ranking_loss", "cosine_embedding_loss")


@claim("TR-LOSS-004", "no loss whose targets have a fixed range was seen")
def targets_are_in_range(run: Run, record: Record) -> None:
    """The targets are outside of the range for which the loss is defined. PyTorch does not check this range.

    A loss without a reduction is not judged: targets outside of the range may mark elements that a mask leaves out
    later. For `margin_ranking_loss`, a target of 0 is a hint: the target may be the sign of a difference, 0 for a tie.
    Where other calls at the line have targets of -1, 0 is an element without a label.

    Or the arguments are swapped: the input has only zeros and ones, and only the target requires a gradient.
    """
    signed = {
        at for at, function, facts in _operands(run) if function in SIGNS and facts.get("targets", {}).get("low", 0) < 0
    }
    for at, function, facts in _operands(run):
        targets = facts.get("targets")
        if targets is None or facts["reduction"] == "none":
            continue
        record.tried += 1
        if function in SIGNS and targets["zeros"] and targets["low"] == 0 and at not in signed:
            (record.hint if function == "margin_ranking_loss" else record.falsify)(
                at,
                f"{targets['zeros']} targets of {function} are 0 and none is -1: the loss needs targets of 1 and -1, "
                "and a target of 0 has no effect",
                "pass 2 * labels - 1 as the target",
            )
        elif function in RANGES:
            low, high = RANGES[function]
            if targets["low"] < low or targets["high"] > high:
                record.falsify(
                    at,
                    f"the targets of {function} range from {targets['low']:g} to {targets['high']:g}; they are not "
                    "probabilities, so the loss has no minimum",
                    "pass targets from 0 to 1, such as (labels == 1).float() or masks / 255",
                )
            elif facts.get("input_is_labels"):
                record.falsify(
                    at,
                    f"the arguments of {function} are swapped: its input has only zeros and ones and requires no "
                    "gradient, and its target requires a gradient",
                    f"call {function}(prediction, target)",
                )


@claim("TR-LOSS-005", "no cross-entropy of flattened operands was seen")
def flattened_in_one_order(run: Run, record: Record) -> None:
    """Flattened rows of logits mix classes and positions, or are in another order than the labels.

    A view keeps the order of the elements in memory, so the shapes before the view show the mistake. A copy, such as by
    `permute(...).reshape(...)`, has another order and is not judged.
    """
    for at, _function, facts in _operands(run):
        before = facts.get("before_flattening")
        if before and before[0] and len(facts["shapes"][0]) > 2:
            shape, first = facts["shapes"][0], before[0]
            record.tried += 1
            if first != shape and len(first) == len(shape) and [shape[0], *shape[2:], shape[1]] == first:
                record.falsify(
                    at,
                    f"logits of shape {first} are viewed as {shape}: a view does not transpose, so each of the "
                    f"{shape[1]} classes gets the scores of other classes and positions",
                    "write logits.movedim(-1, 1) in place of the view",
                )
            continue
        if not before or len(facts["shapes"][0]) != 2:
            continue
        logits, labels = before
        classes = facts["shapes"][0][1]
        if logits is None or len(logits) < 3:
            continue
        record.tried += 1
        # Labels [N, H, W] show that the classes of logits [N, C, H, W] are their second dimension.
        if labels == [logits[0], *logits[2:]] and logits[1] == classes != logits[-1]:
            record.falsify(
                at,
                f"logits of shape {logits} are viewed as rows of {classes} elements: a row holds neighbours in memory, "
                f"which are the scores of one class at several positions, not the {classes} classes of one position",
                "write logits.movedim(1, -1).reshape(-1, classes), or pass logits and labels without flattening",
            )
            continue
        if len(logits) != 3:
            continue
        # Logits [N, C, T] are viewed as [N * T, C] without a transpose. If C is a multiple of T, or T a multiple of C,
        # the rows may be blocks on purpose.
        batch, middle, last = logits
        if last != classes and middle == classes and last % classes and classes % last:
            record.falsify(
                at,
                f"logits of shape {logits} are viewed as rows of {classes} elements: a row holds neighbours in memory, "
                f"which are the scores of one class at {last} positions, not the {classes} classes of one position",
                "write logits.permute(0, 2, 1).reshape(-1, classes), or pass logits [N, C, T] and labels [N, T]",
            )
        elif labels is not None and len(labels) == 2 and labels == [middle, batch] and batch != middle:
            record.falsify(
                at,
                f"logits of shape {logits} and labels of shape {labels} are flattened without a transpose: their first "
                "two dimensions are in different orders, so logits are paired with labels of other positions",
                "flatten labels.t(), or logits.transpose(0, 1)",
            )


@claim("TR-LOSS-006", "no kl_div was seen")
def divergence_is_a_mean_of_rows(run: Run, record: Record) -> None:
    """`kl_div` takes the mean over the classes as well, so its value is divided by the number of classes.

    Always a hint: the weight of this term in the loss may compensate for the division.
    """
    for process in run.processes:
        for event in process.of("backward"):
            for loss in event["losses"]:
                shapes = (loss.get("operands") or {}).get("shapes", [[]])
                if loss["function"] != "kl_div" or len(shapes[0]) < 2:
                    continue
                record.tried += 1
                if loss["reduction"] == "mean":
                    record.hint(
                        loss["at"],
                        f"kl_div with reduction='mean' divides by all {math.prod(shapes[0])} elements, including the "
                        f"{shapes[0][-1]} classes",
                        'pass reduction="batchmean"',
                    )


@claim("TR-LOSS-007", "no number was added to a loss")
def terms_have_gradients(run: Run, record: Record) -> None:
    """A term of the loss is added as a number, so its gradient is lost.

    The tensor on which backward() is called, the root, is a sum of losses with factors, and of a number. In every pass,
    this number is the same multiple of a loss, or of a tensor from which the script has read a number. This loss or
    tensor requires a gradient and gets none in the whole run, which rules out a loss with a separate backward pass. The
    number must vary, which rules out a constant such as a flood level.

    Or the number is computed from a derivative with respect to inputs, as in a gradient penalty or a physical residual,
    and this derivative has no autograd graph. The differentiated output is no part of the loss, and no forward follows
    before the backward pass, which rules out a measurement, and the derivative for an adversarial input.
    """
    for process in run.processes:
        _judge_derivatives(process, record)
        with_gradient = {loss["key"] for event in process.of("backward") for loss in event["losses"]}
        # A cut value is the value of a loss or tensor that requires a gradient and has none from this pass. The rest is
        # the part of the value of the root that the losses and their weights in the gradient do not explain.
        # By line of the backward pass, and key and line of a cut value: the root, its rest, and the cut value.
        rests: dict[tuple[str, int, str], list[tuple[float, float, float]]] = defaultdict(list)
        for event in process.of("backward"):
            root = event.get("root")
            explained: dict[int, float] = defaultdict(float)
            for loss in event["losses"]:
                factor = loss["weight"] if loss["reduction"] == "sum" else loss["weight"] * loss["elements"]
                explained[loss["key"]] += factor * loss["value"]
            if root is None or set(root["losses"]) != set(explained):
                continue
            rest = (root["value"] - sum(explained.values())) / (event["scale"] or 1.0)
            record.tried += 1
            values: dict[tuple[int, str], float] = defaultdict(float)
            for part in root["cut"]:
                if part["key"] not in with_gradient:
                    values[part["key"], part["at"]] += part["value"]
            for (key, at), value in values.items():
                rests[event["at"], key, at].append((root["value"] / (event["scale"] or 1.0), rest, value))
        blamed: set[str] = set()
        for (root_at, _, at), rows in rests.items():
            if root_at in blamed:  # another cut value explains the same number
                continue
            # The rest must be the same multiple of the cut value in every pass, and the cut value must vary by 1 %,
            # since a constant is a multiple of any constant.
            factors = [rest / value for _, rest, value in rows if value]
            sizes = [value for _, _, value in rows]
            visible = all(abs(rest) > 1e-4 * abs(root) and is_finite(rest) for root, rest, _ in rows)
            if len(rows) < 4 or len(factors) < len(rows) or not visible or max(sizes) < 1.01 * min(sizes):
                continue
            # The rounding error of the root in float32, relative to this part.
            allowed = max(4 * ROUNDING * abs(root / rest) for root, rest, _ in rows) + 1e-5
            if max(factors) - min(factors) <= allowed * abs(factors[0]) and allowed < 1e-2:
                blamed.add(root_at)
                record.falsify(
                    at,
                    f"in {len(rows)} backward passes, {factors[0]:.4g} times the value that is computed here "
                    f"({sizes[0]:.4g} in the first pass) is added to the loss as a plain number: the term changes the "
                    "value of the loss, but has no gradient",
                    "add the tensor itself, without .item(), float(), detach() or torch.tensor()",
                )


def _judge_derivatives(process: Process, record: Record) -> None:
    """Judge derivatives without an autograd graph that are computed before the backward passes of one line."""
    by_line: dict[str, list[Event]] = defaultdict(list)
    for event in process.of("backward"):
        by_line[event["at"]].append(event)
    for events in by_line.values():
        lines = [event["derivative"] for event in events if event.get("derivative")]
        record.tried += len(lines)
        if len(lines) >= 4 and len(set(lines)) == 1:
            record.falsify(
                lines[0],
                f"before {len(lines)} backward passes, torch.autograd.grad() computes a derivative with respect to "
                "inputs without create_graph=True, no forward follows, and the loss contains a plain number: the term "
                "that is computed from this derivative has no gradient",
                "call torch.autograd.grad(..., create_graph=True)",
            )


@claim("TR-LOSS-008", "no CTC loss was seen")
def targets_have_no_blank(run: Run, record: Record) -> None:
    """Targets of a CTC loss contain the blank, which separates labels and is not a label.

    No alignment produces a blank target, so no correct program has a blank among its targets.
    """
    for at, function, facts in _operands(run):
        if function == "ctc_loss" and "blanks" in facts:
            record.tried += 1
            if facts["blanks"]:
                record.falsify(
                    at,
                    f"{facts['blanks']:g} of {facts['labels']:g} targets of ctc_loss are the blank label: "
                    "target_lengths include padding, or a class has the index of the blank",
                    "pass lengths without padding, and number the classes from 1 (blank=0)",
                )
