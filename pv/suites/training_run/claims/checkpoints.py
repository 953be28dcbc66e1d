"""Claims about weights that are saved and loaded."""

from collections import defaultdict

from pv.suites.training_run.claim import Record, claim
from pv.suites.training_run.run import Event, Process, Run

LOST_SHARE = 0.2
"""Smallest fraction of a tensor that is a new block of zeros at its end, as evidence of lost values."""


@claim("TR-LOAD-001", "no weights were loaded into a model that had been trained")
def best_weights_are_a_copy(run: Run, record: Record) -> None:
    """A loaded state shares its storage with the model, and was taken before later steps changed the weights.

    Not a fault: the script has changed the weights in place since the last step, as for an average of weights; or the
    state is loaded into another model, as an intended view of the newest weights (see `_is_stale`).

    Or all loads at a line load the newest state of a model into the model itself, again and again: two names, such as
    a target network and the network that it follows, are one object.
    """
    for process in run.processes:
        by_line: dict[str, list[Event]] = defaultdict(list)
        for event in process.of("load"):
            by_line[event["at"]].append(event)
        for at, events in by_line.items():
            fresh = [
                e
                for e in events
                if e["trained"] and e["taken_at_step"] == e["step"] and not e["written"]
                if e["same_storage"] >= e["tensors"] > 0
            ]
            steps = {e["step"] for e in fresh}
            if len(fresh) == len(events) and len(steps - {0}) >= 3:
                record.falsify(
                    at,
                    f"{events[0]['kind']} loads its own state here, after steps "
                    f"{', '.join(map(str, sorted(steps)[:5]))}: the model that is loaded and the one that the state "
                    "is taken from are one object",
                    "make the second model a copy, with copy.deepcopy(model)",
                )
        for event in process.of("load"):
            if not event["step"]:
                continue
            source = event["source"]
            record.tried += bool(event["trained"] or source)
            taken = event["taken_at_step"]
            # All tensors are the model's own, and the script has not written into them since the last step.
            mine = event["tensors"] and event["same_storage"] >= event["tensors"] and not event["written"]
            if event["trained"] and mine and taken is not None and taken < event["step"]:
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
    """Return whether a state was taken to keep old weights, and later steps have overwritten it.

    A script that needs the newest weights takes one state, or uses every state once. Here the line has taken several
    states, and one of them was never used, or one was used again after more steps.
    """
    chosen = source["unused"] or source["uses"] > 1
    return bool(source["shared"] and source["taken_at_step"] < step and source["captures"] > 1 and chosen)


@claim("TR-SAVE-001", "no state of a model was saved after a step")
def saved_weights_are_a_copy(run: Run, record: Record) -> None:
    """A state of the best model is kept by reference, and saved after later steps have changed it.

    A script that saves the newest weights takes a new state for every save. `_is_stale` rules this out.
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
    contents, or with less than half of the weights, are not judged.
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


@claim("TR-LOAD-002", "no weights were loaded with strict=False, or filtered by name", premises=("TR-AVG-003",))
def something_is_loaded(run: Run, record: Record) -> None:
    """No name of the loaded weights is a name in the model, so nothing is loaded.

    An adapter that is loaded separately has only names of the model. A script may also try several names: no later load
    into such a model before the next step may fit.

    Three other cases falsify the claim. In the first, most names differ by one prefix and their shapes are equal;
    layers that are new on purpose would be a small part. In the second, a script filters the weights of a file by name
    and updates the model's own state with them, but no name fits: the load then gives the model its own tensors.

    In a third case, only the running statistics of batch normalization are missing, and the model is evaluated with the
    statistics of a new layer, or its training is resumed. A script that estimates the statistics anew runs the model in
    training mode first.
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
            elif event.get("statistics_missing") and not event["unexpected_count"]:
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
    """Return what is done with a model whose running statistics were not loaded; "" if it may estimate them first."""
    if load["file"] and any(e["kind"] == "optimizer" and e["step"] == load["step"] for e in process.of("restore")):
        return "the training goes on with the state of the optimizer, but with new statistics"
    models = {number for number, kind in process.kinds.items() if kind == load["kind"]}
    first = next((e for e in process.of("forward") if e["n"] > load["n"] and e["model"] in models), None)
    evaluated = first is not None and not first["training"] and not first["training_layers"]
    return "the model is evaluated with them" if evaluated else ""


@claim("TR-LOAD-003", "no weights were loaded before a forward")
def model_runs_with_loaded_weights(run: Run, record: Record) -> None:
    """Loaded parameters have changed before the first forward, without a step, although they are the same objects.

    Two kinds of changes falsify the claim:

    1. In at least two tensors, a block at the end is 0 and all other elements are unchanged. Pruning leaves zeros
       everywhere, and an embedding with unused rows is only one tensor.
    2. The values of all tensors are unrelated to the loaded ones. Layers that are initialized again on purpose are only
       a part of the model, averages and small perturbations correlate with the loaded values, and weights that are
       loaded repeatedly (evolution strategies) are perturbed on purpose.
    """
    for process in run.processes:
        for event in process.of("after_load"):
            if event["compared"] < 2:
                continue
            record.tried += 1
            changed = event["changed"]
            loads = sum(e["kind"] == event["kind"] for e in process.of("load"))
            # `same`, `zeros`: fractions of the elements with the loaded bits, and in a new block of zeros at the end.
            lost = [(name, zeros) for name, same, zeros, _ in changed if zeros >= LOST_SHARE and same + zeros > 0.98]
            other = [name for name, same, _, correlation in changed if same < 0.1 and abs(correlation) < 0.3]
            if len(lost) >= 2 and all(zeros < 1 for _, zeros in lost):
                record.falsify(
                    event["at"],
                    f"{event['kind']} does not run with the loaded weights: {len(lost)} of {event['compared']} tensors "
                    f"end with a block of zeros at the first forward ({lost[0][0]}: {lost[0][1]:.0%}, {lost[1][0]}: "
                    f"{lost[1][1]:.0%} of the elements)",
                    "compare the parameters with the file after they are placed on their devices",
                )
            elif event["compared"] >= 3 and len(other) == event["compared"] and loads == 1:
                record.falsify(
                    event["at"],
                    f"{event['kind']} does not run with the loaded weights: all {event['compared']} tensors have other "
                    "values at the first forward, as after an initialization that follows the load",
                    "initialize the model before load_state_dict",
                )
            elif changed:
                names = ", ".join(name for name, *_ in changed[:4])
                record.hint(
                    event["at"],
                    f"{len(changed)} of {event['compared']} tensors of {event['kind']} change between the load and the "
                    f"first forward: {names}",
                    "load after the model is initialized and converted",
                )


@claim("TR-LOAD-004", "no weights were loaded into a model with tied parameters")
def tied_parameters_stay_tied(run: Run, record: Record) -> None:
    """A tied parameter before a load is two parameters with equal values at the first forward.

    A checkpoint of untied parameters would give two parameters with different values.
    """
    for process in run.processes:
        for event in process.of("after_load"):
            record.tried += event["tied"]
            for group in event["untied_equal"]:
                record.falsify(
                    event["at"],
                    f"{' and '.join(group)} of {event['kind']} were one tied parameter, and are separate parameters "
                    "with equal values after the load: from now on they are trained separately",
                    "tie them again after the load, or load without assign=True",
                )
