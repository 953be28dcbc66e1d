"""Claims about the parameters of models and optimizers."""

from bisect import bisect
from collections import Counter, defaultdict
from itertools import pairwise

from pv.suites.training_run.claim import Record, claim, numbers, windows_of
from pv.suites.training_run.run import Event, Process, Run, Window

CLASSES = {"cross_entropy", "nll_loss", "binary_cross_entropy_with_logits", "multi_margin_loss"}
"""Losses of scores of classes."""
EQUAL = 1e-3
"""Largest difference between the units of a layer that rounding explains, relative to the change of its weights."""


@claim("TR-PARAM-001", "no optimizer held parameters of a model that ran")
def optimizer_holds_the_model(run: Run, record: Record) -> None:
    """An optimizer holds parameters that were replaced in the model after the optimizer was constructed.

    The optimizer's parameters are in no model that runs and never have a gradient. A model has parameters of the same
    shapes, or with one other size, that get gradients and are in no optimizer. All shapes of the optimizer's parameters
    must occur among them, which rules out a part of the model that is used only later, and the script must not update
    the parameters by hand, beside an optimizer that only serves the schedule. The shapes need not agree if no
    parameter of the optimizer is in a model, none has a gradient in four or more steps, and the parameters of the model
    are all in no optimizer and never change: they may have been flattened. Without such a model, the finding is a hint:
    an optimizer may hold parameters that are used outside of modules.

    Or a layer, such as an adapter, was added to a model after the optimizer of the other parameters was constructed:
    the parameters of the layer get gradients, are in no optimizer, and never change. Their values must be random, since
    loaded values may belong to a helper, such as a perceptual network.
    """
    for process in run.processes:
        last = process.held
        left_out = [event for event in {e["model"]: e for e in process.of("parameters")}.values() if event["left_out"]]
        for event in last.values():
            if event["steps"] < 2:
                continue
            record.tried += event["parameters"]
            if event["in_no_model"]:
                _judge_replaced(process, event, left_out, record)
        if not any(event["in_no_model"] for event in last.values()):
            _judge_late_layers(run, process, record)


def _judge_replaced(process: Process, event: Event, left_out: list[Event], record: Record) -> None:
    """Judge an optimizer whose parameters, or some of them, belong to no model.

    Args:
        process: The process.
        event: The last `held` event of the optimizer.
        left_out: The last `parameters` events of the models that have trainable parameters in no optimizer.
        record: The record of the claim.
    """
    shapes = Counter(map(tuple, event["in_no_model_shapes"]))
    creation = next((e for e in process.of("optimizer") if e["optimizer"] == event["optimizer"]), None)
    at, kind = (creation["at"], creation["kind"]) if creation else ("", "an optimizer")
    # Numbers of parameters with a gradient, by step.
    with_gradient = [w.event["gradients"] for w in process.windows.get(event["optimizer"], [])]
    for model in left_out:
        if (
            event["in_no_model"] == event["parameters"]
            and len(with_gradient) >= 4
            and not any(with_gradient)
            and _is_unchanged(model)
        ):
            record.falsify(
                at,
                f"none of the {event['parameters']} parameters of {kind} belongs to a model that runs, and "
                f"none has a gradient in {len(with_gradient)} steps; {model['with_gradient']} parameters of "
                f"{process.kinds.get(model['model'])} get gradients, are in no optimizer and never change: the "
                "parameters of the model were replaced (flattened, wrapped or copied) after the optimizer was "
                "constructed",
                "construct the optimizer after the last change of the model, with model.parameters()",
            )
            return
        same_shapes = [
            name
            for name, shape in zip(model["left_out"], model["left_out_shapes"], strict=True)
            if tuple(shape) in shapes
        ]
        # If the optimizer holds a part of a model that is used only later, the shapes agree in part, by chance.
        has_all_shapes = shapes <= Counter(map(tuple, model["left_out_shapes"]))
        resized = _resized(shapes, model["left_out_shapes"]) if _keeps_left_out(model) else None
        if not has_all_shapes and resized:
            record.falsify(
                at,
                f"{event['in_no_model']} of {event['parameters']} parameters of {kind} belong to no model that "
                f"runs and never have a gradient; parameters of {process.kinds.get(model['model'])} with the same "
                f"shapes, but with size {resized[1]} instead of {resized[0]}, get gradients, are in no optimizer and "
                f"never change ({', '.join(model['left_out'][:3])}): a layer was replaced or resized after the "
                "optimizer was constructed",
                "construct the optimizer after the last change of the model",
            )
            return
        if same_shapes and has_all_shapes and model["changed"] <= model["held"]:
            record.falsify(
                at,
                f"{event['in_no_model']} of {event['parameters']} parameters of {kind} belong to no model that "
                f"runs and never have a gradient; parameters of {process.kinds.get(model['model'])} with the same "
                f"shapes get gradients and are in no optimizer ({', '.join(same_shapes[:3])}): the model was changed "
                "after the optimizer was constructed",
                "construct the optimizer after the last change of the model",
            )
            return
    record.hint(
        at,
        f"{event['in_no_model']} of {event['parameters']} parameters of {kind} belong to no model that "
        "runs and never have a gradient",
        "pass only parameters of the model to the optimizer",
    )


def _judge_late_layers(run: Run, process: Process, record: Record) -> None:
    """Judge parameters that were initialized after the optimizer of their model was constructed."""
    for model in _with_left_out(process):
        late = model.get("late", [])
        if (
            late
            and model["late_drawn"] == model["late_matrices"]
            and model["held"]
            and _keeps_left_out(model)
            and run.complete
            and process.steps >= 4
        ):
            record.tried += len(late)
            record.falsify(
                [e["at"] for e in process.of("optimizer") if e["n"] < model["n"]][-1],
                f"{len(model['left_out'])} trainable parameters of {process.kinds.get(model['model'])} get gradients, "
                f"are in no optimizer and never change; the optimizer of the other {model['held']} parameters was "
                f"constructed before the initialization of {', '.join(late[:4])}",
                "construct the optimizer after the last change of the model",
            )


def _with_left_out(process: Process) -> list[Event]:
    """Return, for each model, the last `parameters` event with trainable parameters in no optimizer.

    Leave out a model if an optimizer holds these parameters later, but not if the parameters are removed from the
    model, as an adapter is when it is merged.
    """
    last: dict[int, Event] = {}
    for event in process.of("parameters"):
        before = last.get(event["model"])
        if event["left_out"]:
            last[event["model"]] = event
        elif before is not None and event["held"] > before["held"]:
            del last[event["model"]]
    return list(last.values())


def _is_unchanged(model: Event) -> bool:
    """Return whether a model has gradients, no optimizer holds its parameters, and none of them has changed."""
    return bool(
        model["with_gradient"]
        and not model["held"]
        and model["compared"] == model["trainable"]
        and not model["changed"]
    )


def _keeps_left_out(model: Event) -> bool:
    """Return whether no parameter outside the optimizers has changed, so the script itself does not update them."""
    return bool(model["compared"] and model["changed"] <= model["held"])


def _resized(held: Counter[tuple[int, ...]], left_out: list[list[int]]) -> tuple[int, int] | None:
    """Return an old and a new size that explain why an optimizer does not hold the parameters of a model.

    For example, an embedding with 50257 rows was replaced by one with 50264 rows.

    Args:
        held: The shapes of parameters of the optimizer that are in no model.
        left_out: The shapes of parameters of the model that are in no optimizer.

    Returns:
        Two sizes: with the new size instead of the old one, all shapes in `held` are in `left_out`; None if there are
        no such sizes.
    """
    # All pairs of an old and a new size are tried. Vectors alone would match by chance.
    shapes = Counter(map(tuple, left_out))
    if not any(len(shape) > 1 for shape in held):
        return None
    sizes = {size for shape in held for size in shape}
    for old in sorted(sizes, reverse=True):
        for new in sorted({size for shape in left_out for size in shape} - {old}):
            changed = Counter({tuple(new if n == old else n for n in shape): k for shape, k in held.items()})
            if changed <= shapes and all(old in shape for shape in held):
                return old, new
    return None


def _line_of(process: Process, event: Event) -> str:
    """Return the line of the first forward with gradients of the model of an event; "" without one."""
    return next((f["at"] for f in process.of("forward") if f["model"] == event["model"] and f["grad"]), "")


@claim("TR-PARAM-002", "no model that ran has trainable parameters at the end", premises=("TR-PARAM-001",))
def trainable_parameters_are_held(run: Run, record: Record) -> None:
    """Trainable parameters get gradients that no optimizer applies.

    Always a hint: with LoRA and perceptual losses, gradients pass through a model that is not frozen.
    """
    for process in run.processes:
        held = any(event["parameters"] for event in process.of("held"))
        record.tried += sum({e["model"]: e["trainable"] for e in process.of("parameters")}.values())
        for event in _with_left_out(process):
            if held and event["held"]:
                names = ", ".join(event["left_out"][:4])
                record.hint(
                    _line_of(process, event),
                    f"{len(event['left_out'])} trainable parameters of {process.kinds.get(event['model'])} get "
                    f"gradients and are in no optimizer: {names}",
                    "pass these parameters to the optimizer, or freeze them: parameter.requires_grad_(False)",
                )


@claim("TR-PARAM-003", "no model that ran has trainable parameters at the end")
def layers_belong_to_the_model(run: Run, record: Record) -> None:
    """Layers run inside a model but are not registered in the model, such as layers in a Python list.

    Scripts hide helpers, such as a perceptual network, from `parameters()` in this way, so this is a hint. The claim is
    falsified if a list has several modules with random initial values whose gradients are computed and never used. A
    part that is random and fixed on purpose would require no gradient, or have the shapes of a trained network (a
    randomized prior).
    """
    for process in run.processes:
        for event in {e["model"]: e for e in process.of("parameters")}.values():
            record.tried += event["trainable"]
            # `drawn`: the number of matrices that still have their random initial values.
            drawn, matrices, modules = event.get("listed", (0, 0, 0))
            if event["outside"] and matrices and drawn == matrices:
                record.falsify(
                    _line_of(process, event),
                    f"{modules} modules in a Python list of {process.kinds.get(event['model'])} run and get gradients, "
                    f"but no optimizer holds their parameters: {matrices} weight matrices keep their random initial "
                    "values",
                    "keep the modules in an nn.ModuleList",
                )
            elif event["outside"]:
                record.hint(
                    _line_of(process, event),
                    f"{', '.join(event['outside'][:4])} are used inside {process.kinds.get(event['model'])} and get "
                    "gradients, but are not among the parameters of any model or optimizer",
                    "keep the layers in an nn.ModuleList, or as attributes of the module",
                )


@claim(
    "TR-PARAM-004", "no parameter was compared before and after three steps", premises=("TR-PARAM-001", "TR-NAN-001")
)
def parameters_move(run: Run, record: Record) -> None:
    """A parameter does not change in any examined step, although its gradient is far above rounding errors.

    At least three steps with a rate above 0 are examined. Only float32 parameters count for which a change by the rate
    times the gradient is visible, and other parameters of the same optimizer must change. A user-defined optimizer may
    leave out parameters on purpose: the finding is then a hint, unless no unchanged parameter is contiguous in memory.

    Or most elements of the parameters in half precision keep their values in every examined step whose rate is at least
    half of the largest rate: Adam changes an element by about the rate, which is less than half of the distance to the
    next number. Only Adam, AdamW, NAdam and RAdam of torch are judged, which round to the nearest number; others may
    round at random, or add the rounding error to the next update. If fewer than 90 % of the elements keep their values,
    the finding is a hint, since the training may still work as intended.

    Or, from some step until the end, the gradients of some parameters are removed before every step, but were applied
    until then. This is a hint, since a script may freeze a part in this way.
    """
    for process, optimizer, windows in windows_of(run):
        _judge_removed_gradients(windows, record)
        checked = [w for w in windows if "moved" in w.event and max(w.event["rates"], default=0) > 0]
        if len(checked) < 3:
            continue
        record.tried += len(checked)
        # `unmoved` names parameters whose update would be visible in float32; see the observer.
        stuck = set.intersection(*(set(w.event["moved"]["unmoved"]) for w in checked))
        if stuck and all(w.event["moved"]["moved"] for w in checked):
            names = sorted(stuck)
            # torch updates parameters in place. An optimizer that updates a contiguous copy loses the update of every
            # parameter that is not contiguous, and of no other one.
            builtin = any(e["builtin"] for e in process.of("optimizer") if e["optimizer"] == optimizer)
            not_contiguous = all(not w.event["moved"]["unmoved_contiguous"] for w in checked)
            add = record.falsify if builtin or not_contiguous else record.hint
            add(
                checked[0].at,
                f"{len(names)} parameters have a gradient but do not change in {len(checked)} compared steps, bit for "
                f"bit: {', '.join(names[:4])}",
                "look for an update that is written to a copy (of a tensor that is not contiguous), or for a parameter "
                "that a compiled or fused step leaves out",
            )
        creation = next((e for e in process.of("optimizer") if e["optimizer"] == optimizer), None)
        largest = max(max(w.event["rates"], default=0) for w in windows)
        full = [w for w in checked if 2 * max(w.event["rates"]) >= largest]
        # `halves`: the number of elements in half precision that have a gradient, and how many of them change.
        halves = [w.event["moved"].get("halves", (0, 0)) for w in full]
        lost = min((1 - changed / count for count, changed in halves if count), default=0.0)
        kind = creation["kind"] if creation is not None and creation["builtin"] else ""
        if kind in ("Adam", "AdamW", "NAdam", "RAdam") and lost > 0.5 and len(full) >= 3:
            add = record.falsify if lost >= 0.9 else record.hint
            add(
                full[0].at,
                f"in each of {len(full)} compared steps, at least {100 * lost:.1f} % of the elements in half precision "
                f"that have a gradient keep their values: {kind} changes an element by about the rate, {largest:.3g}, "
                "and such a change is lost by rounding",
                "keep the weights in float32 and compute under autocast, or copy float32 master weights into the model",
            )


def _judge_removed_gradients(windows: list[Window], record: Record) -> None:
    """Judge gradients that are removed between the backward pass and the step."""
    counts = [window.event.get("removed_count", 0) for window in windows if window.passes]
    # The number of steps at the end with the same count. Fewer than 8 steps, or than a quarter of the run, may be
    # exceptions.
    last = next((i for i, count in enumerate(reversed(counts)) if count != counts[-1]), len(counts)) if counts else 0
    if not counts or not counts[-1] or last < 8 or 4 * last < len(counts) or 0 not in counts:
        return
    window = [window for window in windows if window.passes][-last]
    names = ", ".join(window.event["removed"])
    record.hint(
        window.at,
        f"from step {window.step} on, the gradients of {counts[-1]} parameters are removed between the backward pass "
        f"and the step, in all {last} steps: {names}; in earlier steps, these gradients were applied",
        "look for a compiled step that keeps a list of the parameters with a gradient; to freeze a part on purpose, "
        "call part.requires_grad_(False)",
    )


@claim("TR-PARAM-005", "no frozen parameter was in an optimizer")
def frozen_parameters_stay(run: Run, record: Record) -> None:
    """A step changes a parameter that requires no gradient, and whose gradient is missing or 0.

    If the script has assigned a gradient, the change is intended. A user-defined optimizer may also change such
    parameters on purpose, for example an optimizer that uses no gradients.
    """
    for process, optimizer, windows in windows_of(run):
        checked = [w for w in windows if "moved" in w.event and w.event["moved"]["frozen"]]
        record.tried += len(checked)
        wrong = [w for w in checked if w.event["moved"]["moved_frozen"]]
        if wrong:
            names = wrong[0].event["moved"]["moved_frozen"]
            builtin = any(e["builtin"] for e in process.of("optimizer") if e["optimizer"] == optimizer)
            add = record.falsify if builtin else record.hint
            add(
                wrong[0].at,
                f"step {wrong[0].step} changes {len(names)} parameters that are frozen (requires_grad is False): "
                f"{', '.join(names[:4])}; their gradient is 0 or missing, so momentum or weight decay changes them",
                "set the gradient of a frozen parameter to None, or leave the parameter out of the optimizer",
            )


@claim(
    "TR-PARAM-006", "no model that ran has trainable parameters at the end", premises=("TR-GRAD-003", "TR-PARAM-001")
)
def layers_get_gradients(run: Run, record: Record) -> None:
    """Layers run and never get a gradient.

    This is a hint: stop-gradients, poolers and fixed encoders may be intended. Two cases falsify the claim:

    1. The layers run in a reentrant checkpoint, and no input of the checkpoint requires a gradient. A checkpoint has no
       purpose without a backward pass.
    2. The layers run under `no_grad`, or their output is detached, and they cannot be a fixed encoder: their weights
       are random and were never loaded or changed, the optimizer holds them, later layers train on their output, and
       they have dropout. The run must be complete.

    Matrices with a gradient of exactly 0 in all compared steps, such as those before a rounding, are a hint too.
    """
    for _process, _optimizer, windows in windows_of(run):
        compared = [w for w in windows if "moved" in w.event and w.event["norm"]]
        steps = [set(w.event["moved"].get("zero_gradients", ())) for w in compared]
        zero = sorted(set.intersection(*steps)) if len(steps) >= 3 else []
        if zero:
            more = f" and of {len(zero) - 4} more" if len(zero) > 4 else ""
            record.hint(
                windows[0].at,
                f"the gradient of {', '.join(zero[:4])}{more} is exactly 0 in {len(compared)} compared steps",
                "look for an output that is not used, such as one direction of a recurrent layer, a factor of 0, or an "
                "operation without a slope, such as round(): x + (x.round() - x).detach() has the gradient of x",
            )
    for process in run.processes:
        for event in {e["model"]: e for e in process.of("parameters")}.values():
            record.tried += event["trainable"]
            kind, parts = process.kinds.get(event["model"]), event["cut"]
            first = _line_of(process, event)
            for part in parts:
                names = f"{part['parameters']} of {event['trainable']} trainable parameters of {kind}"
                shown = ", ".join(part["names"][:4])
                if part["how"] == "checkpoint" and process.steps >= 4:
                    record.falsify(
                        part["at"],
                        f"{names} are used in a reentrant checkpoint whose inputs all have requires_grad=False; they "
                        f"are in the optimizer, but have no gradient in any of {process.steps} steps: {shown}",
                        "call checkpoint(..., use_reentrant=False), or let the input of the checkpoint require a "
                        "gradient (model.enable_input_require_grads())",
                    )
                elif run.complete and process.steps >= 4 and event["cut_inputs"] and _is_fault(part):
                    cause = "run under no_grad" if part["how"] == "no_grad" else "have a detached output"
                    record.falsify(
                        first,
                        f"the layers of {names} {cause} in the training forward; these parameters are in the "
                        f"optimizer, but have no gradient in any of {process.steps} steps: {shown}; they keep their "
                        "random initial values, although their layers have dropout and later layers use the output",
                        "remove no_grad() or detach() between these layers and the loss, or freeze them: "
                        "part.requires_grad_(False)",
                    )
            names = event["without_gradient"] + [n for p in parts if p["how"] == "no_grad" for n in p["names"]]
            if names:
                record.hint(
                    first,
                    f"{len(names)} of {event['trainable']} trainable parameters of {kind} are used and are in the "
                    f"optimizer, but never have a gradient: {', '.join(names[:4])}",
                    "use the output of their layers in the loss, without detach() or no_grad(); or freeze them",
                )


def _is_fault(part: Event) -> bool:
    """Return whether layers without a gradient are no fixed encoder: they have random weights and dropout.

    Layers that run under `no_grad` must be in training mode.
    """
    cut = part["how"] == "no_grad" or (part["how"] == "grad" and part["detached"])
    random = part["weights"] and part["drawn"] == part["weights"] and not part["changed"]
    return bool(cut and random and part["dropout"] and (part["training"] or part["how"] == "grad"))


@claim("TR-PARAM-007", "the script sets no attribute that looks like requires_grad")
def attributes_freeze(run: Run, record: Record) -> None:
    """Parameters change although `module.requires_grad = False`, or a misspelt `requires_grad`, is set to freeze them.

    The attribute has no effect in torch. An attribute that some code has read is not judged: the script may use the
    attribute for another purpose.
    """
    for process, _optimizer, windows in windows_of(run):
        checked = [w for w in windows if "moved" in w.event and w.event["moved"]["marks"]]
        record.tried += len(checked)
        wrong = [w for w in checked if w.event["moved"]["marked"]]
        if wrong:
            _, attribute, at = wrong[0].event["moved"]["marked"][0]
            names = [name for name, _, place in wrong[0].event["moved"]["marked"] if place == at]
            module = attribute == "requires_grad"
            record.falsify(
                at,
                f"{attribute} = False sets a new attribute of {'a module' if module else 'a parameter'}, which nothing "
                f"reads; step {wrong[0].step} of {process.steps} changes {len(names)} parameters that the attribute "
                f"should freeze: {', '.join(names[:4])}",
                "call module.requires_grad_(False)" if module else "set parameter.requires_grad = False",
            )


@claim(
    "TR-PARAM-008",
    "no optimizer with gradients was compared before and after three steps",
    premises=("TR-PARAM-001", "TR-NAN-001", "TR-GRAD-003"),
)
def steps_change_weights(run: Run, record: Record) -> None:
    """No step of an optimizer changes a weight, although there are gradients.

    Four cases are distinguished:

    1. All rates are 0 in the whole run. This falsifies the claim if the optimizer was constructed with another rate,
       and no other optimizer takes steps. Otherwise the finding is a hint: a rate of 0 from the start may be a dry run,
       and in a short run, the training of one part, such as a discriminator, may not have begun yet.
    2. Gradients are far above rounding errors, the rate is not 0, and no bit of any parameter changes. This falsifies
       the claim for an optimizer of torch.
    3. The optimizer changes copies: parameters outside of all models, equal in number and shapes to the parameters of a
       model that get gradients and never change.
    4. Two successive matrices, such as a and b in `b @ a @ x`, are 0 and have gradients of exactly 0. The gradient of
       each is multiplied by the other, so neither ever changes.
    """
    for process, optimizer, windows in windows_of(run):
        creation = next((e for e in process.of("optimizer") if e["optimizer"] == optimizer), None)
        compared = [w for w in windows if "moved" in w.event and w.event["moved"]["checked"]]
        stuck = _stuck_products(compared)
        if stuck:
            record.tried += len(compared)
            record.falsify(
                windows[0].at,
                f"{stuck[0][0]} and {stuck[0][1]} are all zeros and have gradients of exactly 0 in {len(compared)} "
                "steps: they are factors of one product, and the gradient of each is multiplied by the other one, 0",
                "initialize one of the two factors at random: in LoRA, B is zeros and A is random",
            )
            continue
        with_gradient = [w for w in windows if w.event["norm"]]
        if len(with_gradient) < 4:
            continue
        checked = [w for w in with_gradient if "moved" in w.event and w.event["moved"]["checked"]]
        record.tried += len(checked)
        rates = [rate for w in windows for rate in w.event["rates"]]
        is_unchanged = checked and not any(w.event["moved"]["moved"] for w in checked)
        if rates and not any(rates) and is_unchanged and run.complete:
            scheduled = creation is not None and any(creation["rates"])
            alone = not any(other for number, other in process.windows.items() if number != optimizer)
            add = record.falsify if scheduled and alone else record.hint
            add(
                windows[0].at,
                f"the learning rate is 0 in all {len(windows)} steps, and no weight changes"
                + (
                    f"; the optimizer was constructed with the rates {numbers(creation['rates'][:4])}"
                    if scheduled and creation
                    else ""
                ),
                "print the rates: an integer division in the schedule, or a step counted in epochs, may keep them at 0",
            )
        elif is_unchanged and len(checked) >= 3 and all(w.event["moved"]["unmoved"] for w in checked) and any(rates):
            builtin = creation is not None and creation["builtin"]
            add = record.falsify if builtin else record.hint
            add(
                windows[0].at,
                f"{len(with_gradient)} steps of {creation['kind'] if creation else 'an optimizer'} have gradients and "
                f"learning rates up to {max(rates):.4g}, but no parameter changes, bit for bit",
                "look for a step that is skipped, or that writes to copies of the parameters",
            )
        # Handwritten mixed precision: the optimizer holds float32 master weights, which are not copied back.
        copied = _copied_model(process, optimizer) if checked and not is_unchanged else None
        if copied is not None:
            record.falsify(
                windows[0].at,
                f"the optimizer changes {copied['trainable']} parameters that belong to no model that runs; the "
                f"parameters of {process.kinds.get(copied['model'])} have the same shapes and get gradients, but keep "
                f"their values in all {len(windows)} steps: master weights are not copied back into the model",
                "copy every master weight into its parameter after the step: p.data.copy_(master)",
            )


@claim("TR-PARAM-009", "no optimizer with moments was created again for the same parameters")
def moments_are_kept(run: Run, record: Record) -> None:
    """An optimizer with moments is created again for every step, at one line, for the same parameters.

    Nothing else has changed the weights between these steps. This rules out federated learning, where a client starts
    from the weights of a server, and meta-learning. If an earlier optimizer has trained more parameters, the finding is
    a hint: the steps may adapt a part of the model to new data, batch by batch.

    An optimizer that is created again for every pass over one loader is a hint, since moments may be reset on purpose.
    This falsifies the claim if the script saves the state of the optimizer, and the rates of all steps are equal, so
    that no new stage or cycle of the training begins.
    """
    for process in run.processes:
        by_line: dict[tuple[int, str], list[Event]] = defaultdict(list)
        for event in process.of("optimizer"):
            if process.windows.get(event["optimizer"]):
                by_line[event.get("again", event["optimizer"]), event["at"]].append(event)
        for events in by_line.values():
            record.tried += len(events) - 1
            if len(events) < 3 or not all(event["moments"] for event in events):
                continue
            # Equal sums over the weights: nothing has changed them between the step of one optimizer and the next.
            runs = [process.windows[event["optimizer"]] for event in events]
            unchanged = [
                a[-1].event["digest"] is not None and a[-1].event["digest"] == b[0].event.get("digest_before")
                for a, b in pairwise(runs)
            ]
            if not all(unchanged):
                continue
            single = all(len(windows) == 1 for windows in runs)
            loaders = {backward.loader for windows in runs for w in windows for backward in w.passes}
            # Every optimizer takes the steps of one pass over the data: only its first step begins a pass.
            per_pass = all(w.begins_pass == (not i) for windows in runs for i, w in enumerate(windows))
            if not single and len(loaders) == 1 and None not in loaders and per_pass:
                rates = [window.event["rates"] for windows in runs for window in windows]
                saved = next(
                    (e["at"] for e in process.of("save") if e["stateful"] and rates.count(rates[0]) == len(rates)), ""
                )
                add = record.falsify if saved else record.hint
                add(
                    events[0]["at"],
                    f"{events[0]['kind']} is constructed {len(events)} times here for the same "
                    f"{events[0]['parameters']} parameters, and takes {len(runs[0])} steps each time, on the same "
                    "data: its moments start from 0 every time"
                    + (f", although its state is saved at {saved}" if saved else ""),
                    "construct the optimizer once, before the loop over epochs",
                )
            if len(events) >= 4 and single:
                is_part = any(
                    e["parameters"] > events[0]["parameters"] and process.windows[e["optimizer"]][0].n < runs[0][0].n
                    for e in process.of("optimizer")
                    if process.windows.get(e["optimizer"])
                )
                (record.hint if is_part else record.falsify)(
                    events[0]["at"],
                    f"{events[0]['kind']} is constructed {len(events)} times here for the same "
                    f"{events[0]['parameters']} parameters, and takes one step each time: its moments start from 0 in "
                    "every step",
                    "construct the optimizer once, before the loop",
                )


@claim("TR-PARAM-010", "no model ran whose last linear layer gives classes and whose other weights are mostly frozen")
def new_head_is_trained(run: Run, record: Record) -> None:
    """The last layer of a fine-tuned model is frozen with random initial values, and its outputs are scored as classes.

    Fixed random heads, and networks with random weights only, may be intended if the other layers are trained or random
    too. Here most other layers are frozen as well, with values from a file or a training, not from an initialization.
    A fixed classifier, whose rows are orthogonal or have equal angles, is not judged.
    """
    for process in run.processes:
        functions = {loss["function"] for event in process.of("backward") for loss in event["losses"]}
        for event in {e["model"]: e for e in process.of("parameters")}.values():
            head = event.get("last_layer")
            # The largest number, since the optimizer may no longer exist at the last event.
            held = max(e["held"] for e in process.of("parameters") if e["model"] == event["model"])
            if not head or not held or process.steps < 4 or not functions & CLASSES:
                continue
            # Most matrices are frozen, and no frozen one still has the values of its initializer.
            if head["frozen_drawn"] or 2 * head["frozen"] < head["matrices"]:
                continue
            record.tried += 1
            if head["drawn"] and not head["trained"]:
                record.falsify(
                    _line_of(process, event),
                    f"{head['name']}, the last layer of {process.kinds.get(event['model'])}, is frozen with random "
                    f"initial values; the other {head['frozen']} frozen matrices are pretrained, and {held} parameters "
                    "of the model are in an optimizer",
                    f"train the new layer: call model.{head['name']}.requires_grad_(True) before the optimizer is "
                    "constructed",
                )


@claim("TR-PARAM-011", "no linear or convolution layer with at least four units was trained")
def units_of_a_layer_differ(run: Run, record: Record) -> None:
    """All units of a layer have equal weights in every recorded step, although the weights change.

    Equal units with equal gradients never become different, so the layer computes one feature. A layer whose units may
    be equal at first, such as a head that begins at 0, has different units after the first step.
    """
    for process in run.processes:
        by_model: dict[int, list[Event]] = defaultdict(list)
        for event in process.of("parameters"):
            by_model[event["model"]].append(event)
        for model, events in by_model.items():
            rows = [{name: (units, *values) for name, units, *values in e.get("rows") or ()} for e in events]
            names = [name for name in rows[0] if all(name in row for row in rows)]
            if len(rows) < 2 or process.steps < 8:
                continue
            record.tried += len(names)
            for name in names:
                units, _, moved = rows[-1][name]
                if any(row[name][2] == 0 or row[name][1] > EQUAL * row[name][2] for row in rows):
                    continue
                record.falsify(
                    next(f["at"] for f in process.of("forward") if f["model"] == model and f["grad"]),
                    f"all {units} units of {name} of {process.kinds.get(model)} have equal weights in every recorded "
                    f"step, and the weights change by up to {moved:.3g}: the layer computes one feature {units} times",
                    "initialize the weights with random numbers, for example nn.init.kaiming_uniform_",
                )
                break


@claim("TR-PARAM-012", "no parameters of a model were compared", premises=("TR-LOAD-004",))
def tied_parameters_are_one(run: Run, record: Record) -> None:
    """Two weights are tied by `.data`, so that they are two parameters, not one.

    1. Two parameters share their memory, and an optimizer updates both: each gets only a part of the gradient, and Adam
       changes the weights twice. SGD is linear in the gradient, so that its two updates add up to the update of one
       parameter: the finding is a hint.
    2. An embedding and a linear layer have equal weights at first, and different ones later, although the configuration
       of the model demands tied weights, or the model has an attribute or a method such as `tie_weights`. Otherwise
       this is a hint: a head may start from the embedding on purpose.
    """
    for process in run.processes:
        is_linear = {e["kind"] for e in process.of("optimizer") if process.windows.get(e["optimizer"])} <= {"SGD"}
        for event in {e["model"]: e for e in process.of("parameters")}.values():
            kind = process.kinds.get(event["model"])
            at = _line_of(process, event)
            right = "assign the parameter itself: head.weight = embedding.weight"
            record.tried += event["held"] if "one_storage" in event else 0
            untied = [names for load in process.of("load") for names in load["untied"]]  # judged by TR-LOAD-004
            for names in event.get("one_storage", ()):
                if names in untied:
                    continue
                add = record.hint if is_linear else record.falsify
                add(
                    at,
                    f"{' and '.join(names)} of {kind} share their memory, but are {len(names)} parameters: each gets "
                    "only a part of the gradient, and the optimizer updates the shared memory once for each of them",
                    right,
                )
            for embedding, head, was_equal, difference, is_tied in event.get("untied") or ():
                if was_equal and difference:
                    add = record.falsify if is_tied else record.hint
                    add(
                        at,
                        f"{embedding} and {head} of {kind} have equal values before the first step, and differ by up "
                        f"to {difference:.3g} at the end: they are trained separately"
                        + (", although the model declares that they are tied" if is_tied else ""),
                        right,
                    )


def _stuck_products(checked: list[Window]) -> list[tuple[str, str]]:
    """Return pairs of names of matrices of one module, the second multiplied with the first, that are 0 in all steps.

    At least three steps are required. The first matrix of a pair must not be square: square matrices may belong to
    unrelated parts that have not run yet.
    """
    steps = [{(name, *shape) for name, shape in w.event["moved"].get("zero_matrices", ())} for w in checked]
    zero = sorted(set.intersection(*steps)) if len(steps) >= 3 else []
    # `b` [height, depth] can be multiplied with `a` [inner, width] if depth == inner. The names of both must have a
    # common parent: `layer.lora_A.weight` and `layer.lora_B.weight`, or `a` and `b`.
    return [
        (a, b)
        for a, inner, width in zero
        for b, height, depth in zero
        if a != b and inner == depth and (width, inner) != (depth, height) and inner != width
        if a.rpartition(".")[0] == b.rpartition(".")[0]
        or any(a.rsplit(".", k)[0] == b.rsplit(".", k)[0] and a.count(".") >= k for k in (2, 3))
    ]


def _copied_model(process: Process, optimizer: int) -> Event | None:
    """Return a model whose weights stay the same while an optimizer changes copies of them that are in no model.

    Return None if there is no such model.
    """
    held = process.held.get(optimizer)
    if held is None or held["outside_shapes"] is None or held["outside"] != held["parameters"]:
        return None
    # A copy that is made for each step, as in meta-learning, does not run in most steps.
    steps = [window.n for window in process.windows[optimizer]]
    for model in {e["model"]: e for e in process.of("parameters")}.values():
        runs = [e["n"] for e in process.of("forward") if e["model"] == model["model"] and e["grad"]]
        if 2 * len({bisect(steps, n) for n in runs} - {len(steps)}) < len(steps):
            continue
        same_shapes = sorted(held["outside_shapes"]) == sorted(model["left_out_shapes"])
        if same_shapes and _is_unchanged(model) and model["trainable"] == held["parameters"] > 1:
            return model
    return None
