"""Claims about the parameters of models and optimizers."""

from collections import Counter

from pv.suites.training_run.record import Record, claim, windows_of
from pv.suites.training_run.run import Run


@claim("TR-PARAM-001", "no optimizer held parameters of a model that ran")
def optimizer_holds_the_model(run: Run, record: Record) -> None:
    """Replaced parameters: held ones that no model has, and a model's of the same shapes that nobody holds."""
    for process in run.processes:
        last = {event["optimizer"]: event for event in process.of("held")}
        left_out = [event for event in {e["model"]: e for e in process.of("parameters")}.values() if event["left_out"]]
        for event in last.values():
            if event["steps"] < 2:
                continue
            record.tried += event["parameters"]
            if not event["in_no_model"]:
                continue
            shapes = Counter(map(tuple, event["in_no_model_shapes"]))
            at = next((e["at"] for e in process.of("optimizer") if e["optimizer"] == event["optimizer"]), "")
            kind = next(
                (e["kind"] for e in process.of("optimizer") if e["optimizer"] == event["optimizer"]), "an optimizer"
            )
            for model in left_out:
                twins = [
                    name
                    for name, shape in zip(model["left_out"], model["left_out_shapes"], strict=True)
                    if tuple(shape) in shapes
                ]
                # Of a part that is used later, only some shapes are those of parameters that nobody holds.
                if twins and shapes <= Counter(map(tuple, model["left_out_shapes"])):
                    record.falsify(
                        at,
                        f"{event['in_no_model']} of {event['parameters']} parameters of {kind} are in no model "
                        "that runs and never "
                        f"have a gradient; {', '.join(twins[:3])} of {process.kinds.get(model['model'])}, of the "
                        "same shape, get "
                        "gradients and are in no optimizer: the model was changed after the optimizer was made",
                        "make the optimizer after the last change of the model",
                    )
                    break
            else:
                record.hint(
                    at,
                    f"{event['in_no_model']} of {event['parameters']} parameters of {kind} are in no model that "
                    "runs and never have a gradient",
                    "leave them out",
                )


@claim("TR-PARAM-002", "no model with trainable parameters ran")
def trainable_parameters_are_held(run: Run, record: Record) -> None:
    """Gradients that no optimizer applies. A hint: LoRA and perceptual losses leave a model unfrozen."""
    for process in run.processes:
        held = any(event["parameters"] for event in process.of("held"))
        for event in {e["model"]: e for e in process.of("parameters")}.values():
            record.tried += event["trainable"]
            if held and event["left_out"] and event["held"]:
                names = ", ".join(event["left_out"][:4])
                record.hint(
                    "",
                    f"{len(event['left_out'])} trainable parameters of {process.kinds.get(event['model'])} get "
                    f"gradients and are in no optimizer: {names}",
                    "hand them to the optimizer, or freeze them",
                )


@claim("TR-PARAM-003", "no model with trainable parameters ran")
def layers_belong_to_the_model(run: Run, record: Record) -> None:
    """Layers that run and are not registered, such as those in a list. A hint: helpers are hidden like this."""
    for process in run.processes:
        for event in {e["model"]: e for e in process.of("parameters")}.values():
            record.tried += event["trainable"]
            if event["outside"]:
                record.hint(
                    "",
                    f"{', '.join(event['outside'][:4])} run inside {process.kinds.get(event['model'])} with "
                    "gradients, and are among the parameters of no model and no optimizer",
                    "keep layers in an nn.ModuleList, or as attributes",
                )


@claim(
    "TR-PARAM-004", "no parameter was compared before and after three steps", premises=("TR-PARAM-001", "TR-NAN-001")
)
def parameters_move(run: Run, record: Record) -> None:
    """A parameter that keeps its bits in every checked step, though its gradient is far above rounding.

    Three steps at a rate above 0; float32 alone, where a step of the rate times the gradient is visible; and others of
    the same optimizer move. An optimizer of the user may leave out a block of parameters on purpose, so there those
    that stay must be the ones that are not contiguous.
    """
    for process, optimizer, windows in windows_of(run):
        checked = [w for w in windows if "moved" in w.event and max(w.event["rates"], default=0) > 0]
        if len(checked) < 3:
            continue
        record.tried += len(checked)
        stuck = set.intersection(*(set(w.event["moved"]["unmoved"]) for w in checked))
        if stuck and all(w.event["moved"]["moved"] for w in checked):
            names = sorted(stuck)
            builtin = any(e["builtin"] for e in process.of("optimizer") if e["optimizer"] == optimizer)
            strided = all(not w.event["moved"]["unmoved_contiguous"] for w in checked)
            note = record.falsify if builtin or strided else record.hint
            note(
                checked[0].at,
                f"{len(names)} parameters have a gradient and are, bit for bit, the same after each of "
                f"{len(checked)} steps: "
                f"{', '.join(names[:4])}",
                "look for an update that is written to a copy (a tensor that is not contiguous), or a parameter "
                "that a "
                "compiled or fused step leaves out",
            )


@claim("TR-PARAM-005", "no frozen parameter was in an optimizer")
def frozen_parameters_stay(run: Run, record: Record) -> None:
    """A parameter that requires no gradient and has none but 0, and is moved by a step all the same.

    A gradient that the script has assigned asks for the step, and so may an optimizer of the user, as one without
    gradients does.
    """
    for process, optimizer, windows in windows_of(run):
        checked = [w for w in windows if "moved" in w.event and w.event["moved"]["frozen"]]
        record.tried += len(checked)
        wrong = [w for w in checked if w.event["moved"]["moved_frozen"]]
        if wrong:
            names = wrong[0].event["moved"]["moved_frozen"]
            builtin = any(e["builtin"] for e in process.of("optimizer") if e["optimizer"] == optimizer)
            note = record.falsify if builtin else record.hint
            note(
                wrong[0].at,
                f"step {wrong[0].step} moves {len(names)} parameters that are frozen (requires_grad is False): "
                f"{', '.join(names[:4])}; momentum or weight decay moves them",
                "set the gradient of a frozen parameter to None, or leave the parameter out of the optimizer",
            )


@claim("TR-PARAM-006", "no model with trainable parameters ran", premises=("TR-GRAD-003", "TR-PARAM-001"))
def layers_get_gradients(run: Run, record: Record) -> None:
    """Layers that run with gradients and never get one. A hint: stop-gradients and poolers are meant."""
    for process in run.processes:
        for event in {e["model"]: e for e in process.of("parameters")}.values():
            record.tried += event["trainable"]
            if event["without_gradient"]:
                names = event["without_gradient"]
                record.hint(
                    "",
                    f"{len(names)} of {event['trainable']} trainable parameters of "
                    f"{process.kinds.get(event['model'])} ran, are in the optimizer, and have no gradient: "
                    f"{', '.join(names[:4])}",
                    "detach nothing between them and the loss, or freeze them",
                )
