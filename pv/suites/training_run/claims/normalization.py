"""Claims about the statistics of normalization layers."""

import math
from collections import defaultdict

from pv.suites.training_run.claim import Record, claim
from pv.suites.training_run.run import Event, Run

HINT_EPS, FALSIFYING_EPS, MIN_DEVIATION, MIN_BATCHES = 0.05, 0.5, 0.8, 8
"""Smallest eps of a hint and of a falsified claim, smallest normal standard deviation of outputs, fewest batches."""


@claim("TR-NORM-001", "no layer with running statistics was trained")
def layers_normalize_one_distribution(run: Run, record: Record) -> None:
    """One normalization layer runs after several different layers in one forward, on inputs that are far apart.

    The running statistics are then a mixture, so an evaluation differs from the training. Two branches that share a
    trunk, and the steps of a recurrence, also share the previous layer, and do not count. In parallel branches with
    separate first layers, one call does not depend on the other: the finding is a hint. The remaining case is one layer
    at two depths of a network; the finding is a hint if no evaluation in eval mode uses the statistics.
    """
    for process in run.processes:
        used = {process.kinds.get(f["model"]) for f, _ in process.evaluations if f["eval_layers"] and not f["training"]}
        record.tried += sum(f["training_layers"] > f.get("dropouts", 0) for f, _ in process.training_forwards)
        by_layer: dict[tuple[int, str], list[Event]] = defaultdict(list)
        for event in process.of("shared_norm"):
            if event["apart"] is not None:
                by_layer[event["model"], event["layer"]].append(event)
        for (model, layer), events in by_layer.items():
            # Half a standard deviation, or a factor of 2: batches of one distribution are closer.
            far = [e["apart"] for e in events if e["apart"]["shift"] > 0.5 or e["apart"]["spread"] > 2]
            if 2 * len(far) <= len(events):
                continue
            first = events[0]
            seen = (
                f"{layer} in {process.kinds.get(model)} runs {first['calls']} times in a forward, after "
                f"{first['layers']} different layers; the means of the inputs are {far[0]['shift']:.2g} standard "
                f"deviations apart, and the variances differ by a factor of {far[0]['spread']:.3g}: the running "
                "statistics of the layer fit none of these inputs"
            )
            right = "construct a separate normalization layer for each place"
            sure = all(e["serial"] for e in events) and process.kinds.get(model) in used
            (record.falsify if sure else record.hint)(first["at"], seen, right)


@claim("TR-NORM-002", "no layer with torch.nn.utils.spectral_norm ran")
def spectral_norms_are_estimated(run: Run, record: Record) -> None:
    """A layer divides by an estimate of its spectral norm before any power iteration.

    Power iterations run only in training mode; before the first forward in this mode the estimate is random. One
    forward may only determine shapes, so the finding is a hint if all such forwards have the same input.
    """
    for process in run.processes:
        by_line: dict[tuple[str, int], list[Event]] = defaultdict(list)
        inputs: dict[int, set[float]] = defaultdict(set)
        for event in process.of("spectral_norm"):
            record.tried += 1
            used, norm = event["norms"]
            # Power iterations approach the norm from below. The first random vector is far below it.
            if used < 0.3 * norm:
                by_line[event["at"], event["model"]].append(event)
                inputs[event["model"]].add(event["input"])
        for (at, model), events in by_line.items():
            used, norm = events[0]["norms"]
            seen = (
                f"a {events[0]['layer']} with spectral normalization runs in eval mode before its first forward in "
                f"training mode: its weight is divided by {used:.3g}, but its spectral norm is {norm:.3g}"
            )
            right = "call the model once in training mode, or use torch.nn.utils.parametrizations.spectral_norm"
            (record.falsify if len(inputs[model]) > 1 else record.hint)(at, seen, right)


@claim("TR-NORM-003", "no layer with running statistics was trained")
def batch_normalization_has_an_effect(run: Run, record: Record) -> None:
    """A batch normalization does not normalize, or is evaluated with the statistics of one batch.

    1. Its eps is about as large as the variance of its inputs or larger, so its outputs have a standard deviation of
       less than 0.8 (`MIN_DEVIATION`). An eps below 0.5 (`FALSIFYING_EPS`) is a hint, since it may suppress noise on
       purpose. If the momentum, too, is not the default, such an eps is a choice and not judged.
    2. Its momentum is at least 0.9: in torch this is the weight of the new batch, so the running statistics are those
       of the last batch. This is intended if a batch is the whole data set, or if evaluations use batch statistics. A
       momentum of exactly 1 is intended, too: it is not 0.9 or 0.99, the default of other libraries, by mistake.
    """
    for process in run.processes:
        used = {f["model"] for f, _ in process.evaluations if f["eval_layers"] and not f["training"]}
        batches: dict[int, int] = {event["loader"]: event["batches"] for event in process.of("pass_end")}
        by_model: dict[int, list[Event]] = defaultdict(list)
        for event in process.of("statistics"):
            by_model[event["model"]].append(event)
        trained: dict[int, Event] = {}
        # By model: the numbers of batches into which its training data are divided.
        parts: dict[int, set[int]] = defaultdict(set)
        for forward, _ in process.training_forwards:
            if forward["training_layers"] > forward.get("dropouts", 0):
                trained[forward["model"]] = forward
                parts[forward["model"]].add(batches.get(forward["loader"], 0))
        for model, forward in trained.items():
            record.tried += 1
            # The settings must be unusual at every event: a script may change them for a while, to adapt statistics.
            events = by_model.get(model, [])
            if len(events) < 2 or not all(event.get("unusual") for event in events):
                continue
            weak, last = [], []
            for layer in events[-1]["unusual"]:
                momentum, count = layer["momentum"], layer["batches"]
                # The running variance begins at 1. `begin` is the weight that this 1 still has after all batches; it
                # has none if the momentum is None, since the running variance is then the mean over the batches.
                begin = 0.0 if momentum is None else (1 - min(momentum, 1.0)) ** count
                variance = (layer["variance"] - begin) / (1 - begin) if begin < 0.99 else 1.0
                deviation = math.sqrt(max(variance, 0.0) / (max(variance, 0.0) + layer["eps"]))
                is_chosen = layer["eps"] < FALSIFYING_EPS and momentum != 0.1
                if layer["eps"] >= HINT_EPS and deviation < MIN_DEVIATION and count >= MIN_BATCHES and not is_chosen:
                    weak.append((layer, variance, deviation))
                if momentum is not None and 0.9 <= momentum < 1 and count >= MIN_BATCHES and model in used:
                    last.append(layer)
            if weak:
                layer, variance, deviation = max(weak, key=lambda row: float(row[0]["eps"]))
                (record.falsify if layer["eps"] >= FALSIFYING_EPS else record.hint)(
                    forward["at"],
                    f"{layer['kind']} {layer['name']} of {process.kinds.get(model)} has eps {layer['eps']:g}, but the "
                    f"variance of its inputs is {max(variance, 0.0):.3g}: its outputs have a standard deviation of "
                    f"{deviation:.2g} instead of 1",
                    "leave eps at its default of 1e-05",
                )
            elif last and min(parts[model]) >= MIN_BATCHES // 2:
                record.falsify(
                    forward["at"],
                    f"{last[0]['kind']} {last[0]['name']} of {process.kinds.get(model)} has momentum "
                    f"{last[0]['momentum']:g}, which is the weight of the newest batch: its running statistics are "
                    f"the statistics of the last of {last[0]['batches']:.0f} batches, and an evaluation uses them",
                    "leave momentum at its default of 0.1; it is 1 minus the momentum of other libraries",
                )
