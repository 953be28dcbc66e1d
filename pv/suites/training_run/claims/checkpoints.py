"""Claims about weights that are saved and loaded."""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from pv.suites.training_run.claim import Record, claim, numbers
from pv.suites.training_run.claims.reported import Evaluation, directions, evaluations_of, reported_numbers
from pv.suites.training_run.claims.schedules import direction_of, improve
from pv.suites.training_run.run import Event, Process, Run, Window

NO_SCORES = set("train training norm best epoch step steps iter it batch lr rate time sec s".split())
"""Words in names of reported numbers. By such a number, a counter, time or training loss, no script selects a state."""
LOSSES = {"loss", "error", "nll", "ce", "mse"}
"""Words in names of losses: only the smallest value of such a number may select the best state.

A training loss usually falls, so a largest value in the first state shows nothing.
"""
CLEAR_IMPROVEMENT = 0.05
"""Smallest relative improvement of a loss or an accuracy that a choice of the best state must not overlook."""
LOST_SHARE = 0.2
"""Smallest size of a new block of zeros at the end of a tensor that shows lost values, as a fraction of the tensor."""


@claim("TR-LOAD-001", "no weights were loaded into a model that had been trained")
def best_weights_are_a_copy(run: Run, record: Record) -> None:
    """A loaded state shares its storage with the model, and was taken before steps that changed the weights.

    Not a fault: the script has changed the weights in place since the last step, as for an average of weights.

    A state that is loaded into another model may be an intended view of the newest weights. This is ruled out if a line
    has taken several states, and one of them was never used, or one was used again after more steps.

    Or all loads at a line load the newest state of a model into the model itself, again and again: two names, such as
    a target network and the network that it follows, are one object.
    """
    for process in run.processes:
        by_line: dict[str, list[Event]] = defaultdict(list)
        for event in process.of("load"):
            by_line[event["at"]].append(event)
        for at, events in by_line.items():
            into_itself = [
                e
                for e in events
                if e["trained"] and e["taken_at_step"] == e["step"] and not e["written"]
                if e["same_storage"] >= e["tensors"] > 0
            ]
            steps = {e["step"] for e in into_itself}
            if len(into_itself) == len(events) and len(steps - {0}) >= 3:
                record.falsify(
                    at,
                    f"{events[0]['kind']} loads its own state here, after steps "
                    f"{', '.join(map(str, sorted(steps)[:5]))}: the model that loads a state and the model that the "
                    "state is taken from are one object",
                    "make the second model a copy, with copy.deepcopy(model)",
                )
        for event in process.of("load"):
            if not event["step"]:
                continue
            source = event["source"]
            record.tried += bool(event["trained"] or source)
            taken = event["taken_at_step"]
            # All tensors are tensors of the model, and the script has not written into them since the last step.
            is_view = event["tensors"] and event["same_storage"] >= event["tensors"] and not event["written"]
            if event["trained"] and is_view and taken is not None and taken < event["step"]:
                record.falsify(
                    event["at"],
                    f"the state of {event['kind']} taken after step {taken} and loaded after step {event['step']} "
                    f"shares all {event['tensors']} tensors with the model, and the steps in between changed them: "
                    "nothing is restored",
                    "keep a copy: state = copy.deepcopy(model.state_dict())",
                )
            elif source and not (event["same_storage"] and event["trained"]) and _is_stale(source, event["step"]):
                record.falsify(
                    source["taken_at"],
                    f"the state taken here after step {source['taken_at_step']} is loaded into {event['kind']} after "
                    f"step {event['step']} ({event['at']}); it shares its tensors with the model, and the steps in "
                    "between changed them: the newest weights are loaded",
                    "keep a copy: state = copy.deepcopy(model.state_dict())",
                )


def _is_stale(source: Event, step: int) -> bool:
    """Return whether a state was taken to keep old weights, and later steps have overwritten the state.

    A script that needs the newest weights takes one state, or uses every state once. Here the line has taken several
    states, and one of them was never used, or one was used again after more steps.
    """
    chosen = source["unused"] or source["uses"] > 1
    return bool(source["shared"] and source["taken_at_step"] < step and source["captures"] > 1 and chosen)


@claim("TR-SAVE-001", "no state of a model was saved after a step")
def saved_weights_are_a_copy(run: Run, record: Record) -> None:
    """A state of the best model is kept by reference, and saved after later steps have changed it.

    A script that saves the newest weights takes a new state for every save. This is ruled out if one of the states was
    never used, or was used again after more steps.
    """
    for process in run.processes:
        for event in process.of("save"):
            for source in event.get("sources", ()):
                record.tried += bool(event["step"])
                if _is_stale(source, event["step"]):
                    record.falsify(
                        source["taken_at"],
                        f"the state taken here after step {source['taken_at_step']} is saved after step "
                        f"{event['step']} ({event['at']}); it shares its tensors with the model, and the steps in "
                        f"between changed them: the file has the weights of step {event['step']}",
                        "keep a copy: state = copy.deepcopy(model.state_dict()), or save the state here",
                    )


@claim("TR-SAVE-002", "no state of an optimizer with moments was saved in a run that ended by itself")
def saved_optimizer_has_its_weights(run: Run, record: Record) -> None:
    """The saved state of an optimizer includes parameters whose weights are in no file.

    Shapes are counted over all files, so names, copies, averages and formats do not matter. A script that saves only a
    part of a model, such as a generator or an encoder, does not save the moments of the rest. Files with unknown
    contents, or with less than half of the weights, are not judged, nor files with tensors of other shapes that may be
    the lacking weights in another layout.
    """
    for process in run.processes:
        for event in process.of("saved") if run.complete else ():
            # If most weights are in no known file, they may be saved in a way that is not observed.
            if event["lacking"] * 2 > event["optimized"]:
                continue
            record.tried += event["optimized"]
            if event["lacking"]:
                names = ", ".join(event["names"][:4]) or f"parameters of the shapes {event['shapes'][:3]}"
                at = next(e["at"] for e in process.of("save") if e["stateful"])
                record.falsify(
                    at,
                    f"the saved optimizer state has moments of {event['optimized']} parameters, but the weights of "
                    f"{event['lacking']} of these parameters are in no file: {names}",
                    "save every module that the optimizer trains",
                )


@claim(
    "TR-SAVE-003",
    "no library compared a metric, and no earlier state was restored after the last step",
    premises=("TR-LOAD-001", "TR-SAVE-001", "TR-RESUME-008"),
)
def best_state_is_the_best(run: Run, record: Record) -> None:
    """The best state, or the end of the training, is chosen by a metric in the wrong direction.

    1. A callback of a library compares a metric in the wrong direction. The name of the metric shows the direction, or
       its values do: all of them equal a loss, or all an accuracy, of the last evaluation. The metric must improve in
       this direction during the run, which rules out a likelihood that is called a loss.
    2. After the last step, the script restores the weights of an earlier step, or it has saved a file with "best" in
       its name. One loss or accuracy, in at least three evaluations, is worst in this state, and every other one is
       not better than its median. The worst value must differ from the best one by more than 5 % (`CLEAR_IMPROVEMENT`),
       since a script may require a minimal improvement. A state with the largest or smallest value of another reported
       number, such as a recall or a size, is not judged: the script may select by this number.
    """
    for process in run.processes:
        choices: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
        for event in process.of("choice"):
            choices[event["by"], event["name"], event["mode"]].append(event)
        evaluations = evaluations_of(process, least=1)
        for (by, name, mode), events in choices.items():
            values = list(dict.fromkeys(event["value"] for event in events))
            direction = _direction(process, name, events, evaluations)
            if direction is None or len(values) < 2:
                continue
            record.tried += len(events)
            if direction != mode and improve([event["value"] for event in events], direction):
                first = "largest" if mode == "max" else "smallest"
                record.falsify(
                    events[0]["at"],
                    f"{by} compares the values {numbers(values[:6])} of {name} and takes the {first} value for the "
                    "best one, although it is the worst: the worst state is kept as the best",
                    f"pass greater_is_better={direction == 'max'} to TrainingArguments"
                    if by == "Trainer"
                    else f'pass mode="{direction}" to {by}',
                )
        for event, windows, step, action in _kept_states(run, process):
            earlier = [evaluation for evaluation in evaluations if evaluation.end < event["n"]]
            series = [values for values in _measured_series(earlier, windows) if step in values]
            if not series:
                continue
            record.tried += 1
            saves = sum(other["at"] == event["at"] for other in process.of(event["event"]))
            # Saves after every evaluation select no state; a training loss, for example, always falls.
            if event["event"] == "save" and saves >= min(map(len, series)):
                continue
            # The share of the other states that are not worse: 1 for the worst state, and 0 for the best one.
            shares = [(sum(v <= values[step] for v in values.values()) - 1) / (len(values) - 1) for values in series]
            worst = [
                values
                for values in series
                if all(values[step] > value for other, value in values.items() if other != step)
                and values[step] - min(values.values()) > CLEAR_IMPROVEMENT * abs(values[step])
            ]
            if worst and min(shares) >= 0.5 and not _is_extreme_by_another_number(process, windows, step, series):
                sizes = [abs(value) for value in worst[0].values()]  # an accuracy is a negative number
                record.falsify(
                    event["at"],
                    f"{action} the weights of step {step}, the worst of {len(sizes)} evaluated states: the values in "
                    f"the evaluations are {numbers(sizes[:8])}, and this state has {abs(worst[0][step]):.4g}",
                    "keep the state if the loss is below, or the accuracy above, the best one so far",
                )


def _direction(process: Process, name: str, events: list[Event], evaluations: list[Evaluation]) -> str | None:
    """Return the direction in which a metric improves, by its name or by its values; None if it is not known."""
    if direction_of(name):
        return direction_of(name)
    steps = [event["n"] for event in process.of("step")]
    candidates: list[set[str]] = []
    for event in events:
        last = max((n for n in steps if n < event["n"]), default=-1)
        recent = [evaluation for evaluation in evaluations if last < evaluation.end < event["n"]]
        candidates.append(set().union(*(directions(evaluation, event["value"]) for evaluation in recent)))
    # Fewer values may be equal by chance.
    if len({event["value"] for event in events}) < 3 or any(len(candidate) != 1 for candidate in candidates):
        return None
    common = set().union(*candidates)
    return common.pop() if len(common) == 1 else None


def _is_extreme_by_another_number(
    process: Process, windows: list[Window], step: int, series: list[dict[int, float]]
) -> bool:
    """Return whether a state has the largest or the smallest value of another number that the script reports.

    These do not count: the numbers of `series`, counters, numbers with a word of `NO_SCORES` in their names, and the
    largest of numbers with a word of `LOSSES`.

    Args:
        process: The process.
        windows: The steps of the optimizer.
        step: The number of steps before the state.
        series: Losses and accuracies of the evaluations, by number of steps.
    """
    lines: dict[tuple[int, str], dict[int, float]] = defaultdict(dict)
    for number in reported_numbers(process):
        lines[number.source].setdefault(sum(window.n < number.n for window in windows), number.value)
    steps = sorted(set.intersection(*map(set, series)))
    for (_, name), values in lines.items():
        words = set(re.findall("[a-z]+", name.rpartition("#")[2].lower()))
        if not set(steps) <= set(values) or words & NO_SCORES:
            continue
        # Reported numbers are rounded.
        is_measured = any(
            all(abs(values[n] - abs(measured[n])) <= 1e-3 * abs(values[n]) for n in steps) for measured in series
        )
        is_counter = len({round(values[b] - values[a], 9) for a, b in pairwise(steps)}) == 1
        rest = [values[n] for n in steps if n != step]
        is_largest = values[step] > max(rest) and not words & LOSSES
        if not is_measured and not is_counter and (is_largest or values[step] < min(rest)):
            return True
    return False


def _kept_states(run: Run, process: Process) -> Iterator[tuple[Event, list[Window], int, str]]:
    """Yield loads and saves of the best state.

    Each item is the event, the windows of the optimizer, the number of steps before the state, and the beginning of the
    message. Several ranks may evaluate parts of the data, and choose by the result of all parts: they are left out.
    """
    if not run.complete or len(run.ranks) > 1:
        return
    for optimizer, windows in process.windows.items():
        restored: list[tuple[Event, list[int]]] = []
        for event in process.of("load"):
            for part in event.get("digests", ()) if windows and event["n"] > windows[-1].n else ():
                if part["optimizer"] == optimizer:
                    steps = [window.step for window in windows if window.event["digest"] == part["digest"]]
                    restored.append((event, steps))
        # Several different states may be compared with each other on purpose. The last state may be saved and read
        # again, whether or not it is the best one.
        candidates = {tuple(steps) for _, steps in restored}
        positions = candidates.pop() if len(candidates) == 1 else ()
        if len(positions) == 1 and positions[0] < windows[-1].step:
            yield restored[0][0], windows, positions[0], "the script restores"
        elif not restored and len(process.windows) == 1:
            saves = [event for event in process.of("save") if event.get("best") and event["n"] > windows[0].n]
            if len({event["at"] for event in saves}) == 1:
                step = max(window.step for window in windows if window.n < saves[-1]["n"])
                yield saves[-1], windows, step, "the file of the best state has"


def _measured_series(evaluations: list[Evaluation], windows: list[Window]) -> list[dict[int, float]]:
    """Return series of at least three evaluations: by number of steps, a loss, or an accuracy as a negative number."""
    groups: dict[object, dict[int, float]] = defaultdict(dict)
    for evaluation in evaluations:
        step = sum(window.n < evaluation.end for window in windows)
        if evaluation.kind != "number" and step:
            source = evaluation.loader["loader"] if evaluation.loader is not None else None
            value = (-1 if evaluation.kind == "accuracy" else 1) * evaluation.sums[0] / evaluation.sums[1]
            groups[evaluation.function, evaluation.key, source].setdefault(step, value)
    return [group for group in groups.values() if len(group) >= 3]


@claim("TR-LOAD-002", "no weights were loaded with strict=False, or filtered by name", premises=("TR-AVG-003",))
def something_is_loaded(run: Run, record: Record) -> None:
    """Weights are read from a file, but some or all of them are not loaded.

    If only some names fit, the finding is a hint. Four cases falsify the claim:

    1. No name of the weights is a name in the model, which rules out an adapter: all its names are names in the model.
       A script may try several names, so no later load into such a model before the next step may fit.
    2. Most names differ by one prefix, and the shapes of these weights are equal; layers that are new on purpose would
       be a small part.
    3. A script filters the weights of a file by name and updates the model's own state with them, but no name fits: the
       load then gives the model its own tensors.
    4. Only the running statistics of batch normalization are missing in a file, and the model is evaluated with the
       statistics of a new layer, or its training is resumed. A script that estimates the statistics anew runs the model
       in training mode first. Clients of a federated training keep the statistics of their data on purpose.
    """
    for process in run.processes:
        for event in process.of("load"):
            filtered = event["unused_file"]
            if (event["strict"] and not filtered) or not event["tensors"]:
                continue
            record.tried += 1
            # Later loads into a model of this class, before the next step: the script may try several prefixes.
            later = [
                e
                for e in process.of("load")
                if e["n"] > event["n"] and (e["kind"], e["step"]) == (event["kind"], event["step"])
            ]
            if filtered:
                read, name = filtered
                add = (
                    record.hint
                    if any(e["file"] or e["missing_count"] < e["tensors"] for e in later)
                    else record.falsify
                )
                add(
                    event["at"],
                    f"{event['kind']} loads its own {event['tensors']} tensors, and none of the file read at "
                    f"{read}: names in the file are like {name!r}, names in the model like {event['first_name']!r}",
                    "rename the keys, and load the file itself with strict=True",
                )
            elif event.get("statistics_missing") and event["file"] and not event["unexpected_count"]:
                use = _use_of_initial_statistics(process, event)
                if use and event["statistics_initial"] == event["statistics_missing"]:
                    record.falsify(
                        event["at"],
                        f"the running statistics of {event['statistics_missing']} normalization layers of "
                        f"{event['kind']} are not loaded, and strict=False leaves mean 0 and variance 1: {use}",
                        "keep model.state_dict(), which has parameters and buffers, and load with strict=True",
                    )
            elif event["missing_count"] == event["tensors"] and event["unexpected_count"]:
                add = record.hint if any(e["missing_count"] < e["tensors"] for e in later) else record.falsify
                add(
                    event["at"],
                    f"none of the {event['tensors']} tensors of {event['kind']} is loaded: names in the file are like "
                    f"{event['unexpected'][0]!r}, names in the model like {event['missing'][0]!r}",
                    "rename the keys, and load with strict=True",
                )
            elif event["missing_count"] and event["unexpected_count"]:
                most = event["renamed"] >= 2 and 2 * event["renamed"] >= event["tensors"]
                add = record.falsify if most and not later else record.hint
                add(
                    event["at"],
                    f"{event['missing_count']} of {event['tensors']} tensors are not loaded, and "
                    f"{event['unexpected_count']} tensors of the file have no place in the model"
                    + (f"; {event['renamed']} fit without the prefix {event['prefix']!r}" if most else ""),
                    "rename the keys, and load with strict=True",
                )


def _use_of_initial_statistics(process: Process, load: Event) -> str:
    """Return how a model with initial running statistics is used after a load; "" if it may estimate them first."""
    if any(e["kind"] == "optimizer" and e["step"] == load["step"] for e in process.of("restore")):
        return "the training continues with the state of the optimizer, but with new statistics"
    models = {number for number, kind in process.kinds.items() if kind == load["kind"]}
    first = next((e for e in process.of("forward") if e["n"] > load["n"] and e["model"] in models), None)
    evaluated = first is not None and not first["training"] and not first["training_layers"]
    return "the model is evaluated with them" if evaluated else ""


@claim("TR-LOAD-003", "no weights were loaded before a forward")
def model_runs_with_loaded_weights(run: Run, record: Record) -> None:
    """Loaded parameters have changed before the first forward, without a step, although they are the same objects.

    This is a hint. Two kinds of changes falsify the claim:

    1. In at least two tensors, a block at the end is 0 and nearly all other elements are unchanged. Pruning leaves
       zeros everywhere, and an embedding with unused rows is only one tensor.
    2. The values of all tensors are unrelated to the loaded ones. Layers that are initialized again on purpose are only
       a part of the model, averages and small perturbations correlate with the loaded values, and weights that are
       loaded repeatedly (evolution strategies) are perturbed on purpose. Pruned weights that are initialized again
       (lottery tickets) have new zeros: the loaded weights determine the mask.
    """
    for process in run.processes:
        for event in process.of("after_load"):
            if event["compared"] < 2:
                continue
            record.tried += 1
            changed = event["changed"]
            loads = sum(e["kind"] == event["kind"] for e in process.of("load"))
            # `same`, `zeros`: fractions of the elements with the loaded bits, and in a new block of zeros at the end.
            lost = [(name, zeros) for name, same, zeros, *_ in changed if zeros >= LOST_SHARE and same + zeros > 0.98]
            unrelated = [
                name
                for name, same, _, correlation, *new_zeros in changed  # older traces have no new zeros
                if same < 0.1 and abs(correlation) < 0.3 and not any(new_zeros)
            ]
            if len(lost) >= 2 and all(zeros < 1 for _, zeros in lost):
                record.falsify(
                    event["at"],
                    f"{event['kind']} does not run with the loaded weights: {len(lost)} of {event['compared']} tensors "
                    f"end with a block of zeros at the first forward ({lost[0][0]}: {100 * lost[0][1]:.0f} %, "
                    f"{lost[1][0]}: {100 * lost[1][1]:.0f} % of the elements)",
                    "compare the parameters with the file after they are placed on their devices",
                )
            elif len(unrelated) == event["compared"] and loads == 1:
                record.falsify(
                    event["at"],
                    f"{event['kind']} does not run with the loaded weights: all {event['compared']} compared tensors "
                    "have different values at the first forward, as if they were initialized after the load",
                    "initialize the model before load_state_dict is called",
                )
            elif changed:
                names = ", ".join(name for name, *_ in changed[:4])
                record.hint(
                    event["at"],
                    f"{len(changed)} of {event['compared']} tensors of {event['kind']} change between the load and the "
                    f"first forward: {names}",
                    "call load_state_dict after the model is initialized and converted",
                )


@claim("TR-LOAD-004", "no weights were loaded into a model with tied parameters")
def tied_parameters_stay_tied(run: Run, record: Record) -> None:
    """A load turns one tied parameter into two separate parameters with equal values.

    A checkpoint of untied parameters, which is ruled out, would give two parameters with different values.
    """
    for process in run.processes:
        for event in process.of("after_load"):
            record.tried += event["tied"]
            for group in event["untied_equal"]:
                record.falsify(
                    event["at"],
                    f"{' and '.join(group)} of {event['kind']} were one tied parameter before the load, and are "
                    "separate parameters with equal values after it: from then on they are trained separately",
                    "tie the parameters again after the load, or load without assign=True",
                )
