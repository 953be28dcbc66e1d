"""Claims about weights that are loaded."""

from pv.suites.training_run.record import Record, claim
from pv.suites.training_run.run import Run


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
