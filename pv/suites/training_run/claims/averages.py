"""Claims about averages of weights."""

from collections import defaultdict
from itertools import pairwise

from pv.suites.training_run.claim import Record, claim
from pv.suites.training_run.run import Event, Process, Run

AVERAGED = "AveragedModel"
"""The name of the class of `torch.optim.swa_utils`."""


@claim("TR-AVG-001", "no copy of a trained model was updated")
def averages_follow_the_step(run: Run, record: Record) -> None:
    """Every update of an average of weights falls between a backward pass and the following optimizer step.

    The average is then one step late: it never contains the weights of the last step. A momentum encoder that is
    updated in the forward pass is not affected. An average that is updated in every micro-batch is not judged. With
    several optimizers, the finding is only a hint. The finding is also a hint if the average computes targets in most
    steps, since a target may be one step late.

    The claim is also refuted if, in a run that ended by itself, an AveragedModel is evaluated after at least five steps
    and was never updated: it still has the weights that the model had before its first step.
    """
    for process in run.processes:
        _judge_updates(run, process, record)
        by_average: dict[int, list[Event]] = defaultdict(list)
        for event in process.of("average"):
            by_average[event["average"]].append(event)
        for events in by_average.values():
            record.tried += len(events)
            # `since` is the last observed event before the update, `until` is the first one after the update.
            early = [event for event in events if event["since"] == "backward" and event["until"] == "step"]
            if len(early) < 3 or len(early) < len(events):
                continue
            windows = [window for windows in process.windows.values() for window in windows]
            at = next((window.at for window in windows if window.n > early[0]["n"]), "?")
            seen = (
                f"all {len(early)} updates of an average of {early[0]['kind']} come between the backward pass and this "
                "optimizer step: the average never contains the weights of the last step"
            )
            right = "update the average after optimizer.step()"
            single = sum(bool(windows) for windows in process.windows.values()) == 1
            is_target = _gives_targets(process, events[-1].get("model"))
            (record.falsify if single and not is_target else record.hint)(at, seen, right)


def _gives_targets(process: Process, model: int | None) -> bool:
    """Return whether a model runs before most steps, as a model that computes targets for the loss does."""
    runs = [event["n"] for event in process.of("forward") if event["model"] == model]
    steps = [event["n"] for event in process.of("step")]
    return 2 * sum(any(before < n < step for n in runs) for before, step in pairwise(steps)) > len(steps)


def _judge_updates(run: Run, process: Process, record: Record) -> None:
    """Judge whether an evaluated AveragedModel was ever updated."""
    steps = [event["n"] for event in process.of("step")]
    averages = [model for model, kind in process.kinds.items() if kind == AVERAGED]
    last = {e["model"]: e.get("initial") for e in process.of("parameters") if e["model"] in averages}
    is_initial = bool(last) and all(last.values())
    evaluations = [f for f, _ in process.evaluations if f["model"] in averages and len(steps) > 4 and f["n"] > steps[4]]
    if not run.complete or not evaluations:
        return
    record.tried += len(evaluations)
    if is_initial and not any(process.of("averaged_model")):
        record.falsify(
            evaluations[0]["at"],
            f"an {AVERAGED} is evaluated after {sum(n < evaluations[-1]['n'] for n in steps)} steps, but "
            "update_parameters is never called: it has the weights that the model had before its first step",
            "call averaged.update_parameters(model) after optimizer.step()",
        )


@claim("TR-AVG-004", "no copy of one trained model was updated 20 times by a constant or growing share")
def averages_keep_the_past(run: Run, record: Record) -> None:
    """Updates set an average mostly to the new weights: decay and 1 - decay are swapped.

    Only averages with at least 20 updates are judged, by the share of the new weights in an update. It must be the same
    in all updates, or never fall, begin below a half and rise mostly in the first half of the updates: a swapped
    decay that grows at the beginning has such shares; a right one takes less and less of the new weights. Copies with
    noise or in fewer bits are not judged.
    """
    for process in run.processes:
        by_average: dict[int, list[Event]] = defaultdict(list)
        for event in process.of("average"):
            if event["until"] == "backward" and event.get("share") is not None:
                by_average[event["average"]].append(event)
        for events in by_average.values():
            shares = [event["share"] for event in events]
            is_constant = max(shares, default=0) - min(shares, default=0) <= 1e-3
            grows = not is_constant and shares[0] < 0.5 and all(b > a - 1e-3 for a, b in pairwise(shares))
            # Most of the rise of a swapped decay comes first, unlike in a blend from old to new weights.
            middle = shares[len(shares) // 2] if grows else 0
            grows = grows and 2 * (shares[-1] - middle) < middle - shares[0]
            if len(shares) < 20 or not (is_constant or grows):
                continue
            record.tried += len(shares)
            if shares[-1] > 0.8:
                steps = [window for windows in process.windows.values() for window in windows]
                seen = (
                    f"each of {len(shares)} updates of an average of {events[0]['kind']} takes {shares[0]:.4g} of the "
                    f"new weights and keeps {1 - shares[0]:.2g} of the average, which nearly copies the weights"
                )
                if grows:
                    seen = (
                        f"{len(shares)} updates of an average of {events[0]['kind']} take more and more of the new "
                        f"weights, {shares[0]:.4g} in the first and {shares[-1]:.4g} in the last one"
                    )
                record.falsify(
                    next((window.at for window in steps if window.n > events[0]["n"]), "?"),
                    seen,
                    "average.mul_(decay).add_(weights, alpha=1 - decay), with a decay such as 0.99",
                )


@claim("TR-AVG-005", "no average of weights in half precision was far from the weights in 20 updates")
def averages_are_not_rounded_away(run: Run, record: Record) -> None:
    """Updates of an average in half precision are rounded away: most elements far from the weights never change.

    With a decay of 0.999, an update changes an element by 0.1 % of its distance from the weights: less than half a
    rounding step, unless the distance is 500 rounding steps or more. An average is judged by the updates before which
    at least 25 of about 256 sampled elements are 16 or more rounding steps from the weights. The claim is refuted if at
    least 40 % of these elements stay unchanged in at least 20 of these updates, and in at least half. The elements that
    change, at least 5 in 20 updates, must be the farthest ones, as after rounding to the nearest number. So averages
    that are rounded at random or with compensation, and rounded copies of an average in float32, are not affected.
    """
    for process in run.processes:
        by_average: dict[int, list[Event]] = defaultdict(list)
        for event in process.of("average"):
            if event.get("rounded") and event["rounded"][0] >= 25:
                by_average[event["average"]].append(event)
        for events in by_average.values():
            if len(events) < 20:
                continue
            record.tried += len(events)
            lost = [event["rounded"] for event in events if event["rounded"][1] >= 0.4 * event["rounded"][0]]
            orders = [order for _, _, changed, order in lost if order is not None and changed >= 5]
            if len(lost) < 20 or 2 * len(lost) < len(events) or len(orders) < 20:
                continue
            if sorted(orders)[len(orders) // 10] < 0.99:
                continue
            share = sum(stuck for _, stuck, *_ in lost) / sum(far for far, *_ in lost)
            steps = [window for windows in process.windows.values() for window in windows]
            record.falsify(
                next((window.at for window in steps if window.n > events[0]["n"]), "?"),
                f"in {len(lost)} updates of an average of {events[0]['kind']} in half precision, {share:.0%} of the "
                "elements that differ from the weights by 16 or more rounding steps do not change: the updates are "
                "rounded away",
                "keep the average in float32, and convert a copy of it for the evaluation",
            )


@claim("TR-AVG-003", "no copy of a trained model with batch normalization was evaluated after it was updated")
def averages_copy_statistics(run: Run, record: Record) -> None:
    """An average is evaluated with initial statistics, although the statistics of the averaged model have changed.

    A copy is an average if it has the shapes of a trained model, was never trained, and its weights were written
    between steps. A copy that was called in training mode is correct: this call has updated its statistics.
    """
    for process in run.processes:
        statistics = {event["model"]: event for event in process.of("statistics")}
        networks: dict[int, list[Event]] = defaultdict(list)
        for event in process.of("network"):
            networks[event["model"]].append(event)
        trained = {events[-1]["shapes"]: model for model, events in networks.items() if events[-1]["trained"]}
        for model, events in networks.items():
            twin = trained.get(events[-1]["shapes"])
            # A copy whose weights were never written, as their version counters show, is a teacher, not an average.
            written = any(a["version"] != b["version"] for a, b in pairwise(events))
            if events[-1]["trained"] or twin is None or model not in statistics:
                continue
            if not written and not statistics[model]["average"]:
                continue
            evaluations = [f for f, _ in process.evaluations if f["model"] == model and f["eval_layers"]]
            evaluations = [f for f in evaluations if not f["training"] and not f["training_layers"]]
            record.tried += len(evaluations)
            copy, original = statistics[model], statistics.get(twin)
            if evaluations and original and copy["initial"] == copy["layers"] and not original["initial"]:
                record.falsify(
                    evaluations[0]["at"],
                    f"the averaged copy of {process.kinds.get(model)} is evaluated with {copy['layers']} batch "
                    "normalization layers whose statistics are still mean 0 and variance 1: weights are averaged, "
                    "buffers are not",
                    "copy the buffers too: for a, b in zip(average.buffers(), model.buffers()): a.copy_(b)",
                )


@claim("TR-AVG-002", "no AveragedModel with batch normalization was evaluated")
def averages_have_their_statistics(run: Run, record: Record) -> None:
    """An equally weighted average is evaluated with batch normalization statistics that belong to other weights.

    AveragedModel copies the statistics of the model at the last update. Three cases are not judged:

    1. exponential averages, since they stay close to the last model;
    2. a run that was cut, since it may call update_bn at its end;
    3. averages of models whose normalization stays in eval mode, since their statistics are equal.
    """
    for process in run.processes:
        updates = [event for event in process.of("averaged_model") if event["equal"] and event["statistics"]]
        averages = {model for model, kind in process.kinds.items() if kind == AVERAGED}
        calls = [event for event in process.of("forward") if event["model"] in averages]
        evaluations = [f for f in calls if f["eval_layers"] and not f["training"] and not f["grad"]]
        if len(updates) < 2 or not evaluations:
            continue
        record.tried += len(evaluations)
        later = [forward for forward, _ in process.training_forwards if forward["n"] > updates[0]["n"]]
        if later and all(forward["training_layers"] == forward["dropouts"] for forward in later):
            continue
        if any(process.of("update_bn")) or any(f["training_layers"] for f in calls) or not run.complete:
            continue
        record.falsify(
            evaluations[0]["at"],
            f"the average of {len(updates)} models is evaluated with {updates[0]['statistics']} batch normalization "
            "layers whose statistics belong to the last model only",
            "call torch.optim.swa_utils.update_bn(loader, average) before the evaluation",
        )
