"""Claims about weights that are loaded."""

from pv.suites.training_run.record import Record, claim
from pv.suites.training_run.run import Run

LOST_SHARE = 0.2
"""Share of a tensor that is a block of zeros at its end before a loss is claimed."""


@claim("TR-LOAD-001", "no weights were loaded into a model that had been trained")
def best_weights_are_a_copy(run: Run, record: Record) -> None:
    """What is loaded shares its storage with the model, and was taken before later steps changed it.

    The script may have changed it in place since the last step, as an average of weights does.
    """
    for process in run.processes:
        for event in process.of("load"):
            if not (event["trained"] and event["step"]):
                continue
            record.tried += 1
            taken = event["taken_at_step"]
            if (
                event["tensors"]
                and event["same_storage"] >= event["tensors"]
                and taken is not None
                and taken < event["step"]
                and not event["written"]
            ):
                record.falsify(
                    event["at"],
                    f"the state that {event['kind']} took after step {taken} and loads after step {event['step']} "
                    "is the model's own "
                    f"{event['tensors']} tensors, which the steps between have changed: nothing is restored",
                    "copy.deepcopy(model.state_dict()) where the state is taken",
                )


@claim("TR-LOAD-002", "no weights were loaded with strict=False")
def something_is_loaded(run: Run, record: Record) -> None:
    """Not one name fits. An adapter that is loaded alone fits somewhere, and leaves nothing over.

    A script may try the names as they are, and then rename them: no later load into such a model, before the next step,
    fits.
    """
    for process in run.processes:
        for event in process.of("load"):
            if event["strict"] or not event["tensors"]:
                continue
            record.tried += 1
            if event["missing_count"] == event["tensors"] and event["unexpected_count"]:
                repaired = any(
                    e["n"] > event["n"]
                    and (e["kind"], e["step"]) == (event["kind"], event["step"])
                    and e["missing_count"] < e["tensors"]
                    for e in process.of("load")
                )
                note = record.hint if repaired else record.falsify
                note(
                    event["at"],
                    f"none of the {event['tensors']} tensors of {event['kind']} is loaded: the file has names "
                    "such as "
                    f"{event['unexpected'][0]!r}, the model such as {event['missing'][0]!r}",
                    "rename the keys, and load with strict=True",
                )
            elif event["missing_count"] and event["unexpected_count"]:
                record.hint(
                    event["at"],
                    f"{event['missing_count']} of {event['tensors']} tensors are not loaded, and "
                    f"{event['unexpected_count']} fit nowhere",
                    "load with strict=True",
                )


@claim("TR-LOAD-003", "no weights were loaded before a forward")
def model_runs_with_loaded_weights(run: Run, record: Record) -> None:
    """Between a load and the first forward, without a step, parameters have changed that are still the same objects.

    Two losses have no other reading. In two tensors or more the rest is the same bit for bit, and a block at the end is
    0: pruning leaves zeros everywhere, and an embedding with unused rows is one tensor. Or all tensors have values that
    have nothing to do with those loaded: layers that are initialized anew on purpose are some of them, averages and
    small perturbations correlate, and what is loaded again and again (evolution strategies) is perturbed on purpose.
    """
    for process in run.processes:
        for event in process.of("after_load"):
            if event["compared"] < 2:
                continue
            record.tried += 1
            changed = event["changed"]
            loads = sum(e["kind"] == event["kind"] for e in process.of("load"))
            lost = [(name, zeros) for name, same, zeros, _ in changed if zeros >= LOST_SHARE and same + zeros > 0.98]
            other = [name for name, same, _, correlation in changed if same < 0.1 and abs(correlation) < 0.3]
            if len(lost) >= 2 and all(zeros < 1 for _, zeros in lost):
                record.falsify(
                    event["at"],
                    f"{event['kind']} does not run with what was loaded: {len(lost)} of "
                    f"{event['compared']} tensors have "
                    f"lost the values at their end, which are 0 at the first forward ({lost[0][0]}: "
                    f"{lost[0][1]:.0%}, {lost[1][0]}: {lost[1][1]:.0%})",
                    "compare the parameters with the file after they are placed on their devices",
                )
            elif event["compared"] >= 3 and len(other) == event["compared"] and loads == 1:
                record.falsify(
                    event["at"],
                    f"{event['kind']} does not run with what was loaded: all {event['compared']} tensors have other "
                    "values at the first forward, such as those of an initialization after the load",
                    "initialize before load_state_dict",
                )
            elif changed:
                names = ", ".join(name for name, *_ in changed[:4])
                record.hint(
                    event["at"],
                    f"{len(changed)} of {event['compared']} tensors of {event['kind']} are not as they "
                    "were loaded at the "
                    f"first forward: {names}",
                    "load after initialization and conversion",
                )


@claim("TR-LOAD-004", "no weights were loaded into a model with tied parameters")
def tied_parameters_stay_tied(run: Run, record: Record) -> None:
    """Names of one parameter before a load are two parameters at the first forward, with the same values.

    Whoever loads a checkpoint whose parameters are not tied gets two that differ.
    """
    for process in run.processes:
        for event in process.of("after_load"):
            record.tried += event["tied"]
            for group in event["untied_equal"]:
                record.falsify(
                    event["at"],
                    f"{' and '.join(group)} of {event['kind']} were one parameter, and are two with the "
                    "same values after "
                    "the load: from now on they are trained apart",
                    "tie them again after the load, or load without assign=True",
                )
