"""The attacks on the claims: Hypothesis draws traces of correct runs, which every claim must accept, and edits them.

A drawn run accumulates gradients over micro-batches of unequal sizes, with a short last window in every epoch, perhaps
under a loss scaler, with clipping, a schedule, an evaluation after every epoch, and on several ranks. Each edit of the
trace is what the observer would have noted of one mistake.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

Events = list[dict[str, Any]]
LOSS = "cross_entropy"
TRAIN, TEST = 11, 12
"""Numbers of the loaders of a drawn run; its model has the number 2, its optimizer 1, its schedule 3."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A correct run.

    Attributes:
        epochs: By epoch, by step, by micro-batch: the scored elements on every rank.
        scale: The factor of the loss scaler; 1 without one.
        clip: Whether gradients are clipped, once they are complete and unscaled.
    """

    epochs: tuple[tuple[tuple[tuple[int, ...], ...], ...], ...]
    scale: float
    clip: bool
    logits: bool


@st.composite
def plans(draw: st.DrawFn, *, ranks: int = 1) -> Plan:
    """Draw a run of two or three epochs; the last step of an epoch has fewer micro-batches."""
    full = draw(st.integers(2, 3))
    sizes = st.tuples(*[st.integers(5, 60)] * ranks)
    steps = draw(st.integers(3, 5))
    epoch = st.tuples(*[st.tuples(*[sizes] * full)] * steps, st.tuples(*[sizes] * (full - 1)))
    epochs = tuple(draw(epoch) for _ in range(draw(st.integers(2, 3))))
    return Plan(
        epochs, draw(st.sampled_from([1.0, 1024.0, 65536.0])), draw(st.booleans()), draw(st.booleans()) and ranks == 1
    )


def traces(plan: Plan, ranks: int = 1) -> list[Events]:
    """Return what the observer notes of a run, one list of events a rank."""
    return [_trace(plan, rank, ranks) for rank in range(ranks)]


def _trace(plan: Plan, rank: int, ranks: int) -> Events:
    events: Events = [{"event": "start", "schema": "pv-trace/1", "rank": rank, "world_size": ranks}]

    def add(event: str, **fields: Any) -> None:
        events.append({"event": event, **fields})

    def forward(number: int, *, loader: int, grad: bool) -> None:
        layers = {"training_layers": 2 * grad, "eval_layers": 2 - 2 * grad, "training": grad}
        inputs = [hash((number, rank if grad else 0, grad)) % 99991]
        add(
            "forward",
            model=2,
            loader=loader,
            grad=grad,
            times=1,
            rows=[4],
            inputs=inputs,
            wrapped=ranks > 1,
            at="t.py:3",
            **layers,
        )

    add("optimizer", optimizer=1, kind="AdamW", builtin=True, parameters=8, at="t.py:1")
    add("model", model=2, kind="Net")
    add(
        "scheduler",
        scheduler=3,
        kind="CosineAnnealingLR",
        optimizers=[1],
        planned={"T_max": sum(map(len, plan.epochs))},
        rates=[0.2],
        base_rates=[0.2],
        at="t.py:2",
    )
    add("loader", loader=TRAIN, data=1, at="t.py:2", sampler="RandomSampler", examples=99)
    add("loader", loader=TEST, data=2, at="t.py:2", sampler="SequentialSampler", examples=9)
    if ranks > 1:
        add("ddp", group=ranks, at="t.py:2")
    step = forwards = 0
    for index, epoch in enumerate(plan.epochs, 1):
        add("pass", loader=TRAIN, index=index, at="t.py:3")
        for window in epoch:
            step += 1
            total = sum(map(sum, window))
            add("zero", optimizers=[1], at="t.py:3")
            for position, sizes in enumerate(window):
                forwards += 1
                place = len(events) - 1
                forward(forwards, loader=TRAIN, grad=True)
                weight = ranks * plan.scale / total
                operands = (
                    {"made_by": "AddmmBackward0", "shapes": [[4, 9], [4]]} if step == 1 and not position else None
                )
                loss = {
                    "function": LOSS,
                    "at": "t.py:4",
                    "key": 5,
                    "reduction": "mean",
                    "elements": sizes[rank],
                    "labels": sizes[rank],
                    "value": 2.0,
                    "operands": operands,
                }
                known = [{**loss, "weight": weight, "low": weight, "high": weight}]
                fit = {"sampled": min(64, sizes[rank]), "fitting": min(64, sizes[rank]), "low": weight, "high": weight}
                at_logits = [{"model": 2, "elements": sizes[rank], "weights": fit}]
                left = float(position > 0)
                reached = {"1": {"left_over": left, "kept": left, "written": step, "onto_clipped": 0}}
                scale = plan.scale if plan.scale > 1 else None
                add(
                    "backward",
                    reached=reached,
                    losses=[] if plan.logits else known,
                    logits=at_logits,
                    forwards=[place],
                    scale=scale,
                    at="t.py:5",
                )
            if plan.scale > 1:
                add("unscale", optimizer=1)
            if plan.clip:
                add(
                    "clip",
                    kind="clip_grad_norm_",
                    limit=1.0,
                    norm=2.0,
                    covers={"1": [8, 8]},
                    scale=None,
                    parameters=8,
                    used_up=False,
                    at="t.py:6",
                )
            moved = {"checked": 8, "moved": 8, "unmoved": [], "unmoved_contiguous": 0, "moved_frozen": [], "frozen": 1}
            fields = {"moved": moved} if step <= 3 else {}
            by_scaler = plan.scale > 1
            add(
                "step",
                optimizer=1,
                step=step,
                rates=[0.1],
                norm=1.0 + step,
                gradients=8,
                modified=False,
                digest=float(step),
                by_scaler=by_scaler,
                wraps=False,
                at="t.py:7",
                **fields,
            )
            add("schedule", scheduler=3, explicit=False, at="t.py:8")
        add("pass_end", loader=TRAIN, index=index, batches=sum(map(len, epoch)))
        add("mode", model=2, training=False, before=True, at="t.py:9")
        for batch in range(2):
            forward(2 * index + batch, loader=TEST, grad=False)
            add("evaluation_loss", function=LOSS, at="t.py:9", key=6, reduction="mean", elements=9, labels=9, value=2.0)
        add("pass_end", loader=TEST, index=index, batches=2)
        add("save", parts=["model", "optimizer", "scheduler"], step=step, at="t.py:9")
        add(
            "load",
            kind="Net",
            strict=True,
            tensors=8,
            same_storage=0,
            trained=True,
            step=step,
            taken_at_step=step - 1,
            written=False,
            missing=[],
            missing_count=0,
            unexpected=[],
            unexpected_count=0,
            untied=[],
            at="t.py:9",
        )
        add(
            "load",
            kind="Net",
            strict=False,
            tensors=8,
            same_storage=0,
            trained=True,
            step=step,
            taken_at_step=None,
            written=False,
            missing=["a"] * 6,
            missing_count=6,
            unexpected=[],
            unexpected_count=0,
            untied=[],
            at="t.py:9",
        )
        add("mode", model=2, training=True, before=False, at="t.py:9")
    add("parameters", model=2, trainable=8, held=8, left_out=[], left_out_shapes=[], outside=[], without_gradient=[])
    held = {"parameters": 8, "in_no_model": 0, "in_no_model_shapes": [], "names": 7}
    add("held", optimizer=1, steps=step, shares_with=[], in_ddp=8 * (ranks > 1), **held)
    return numbered(events)


def numbered(events: Events) -> Events:
    """Number the events of a trace anew, after an edit."""
    new = {event["n"]: position - 1 for position, event in enumerate(events) if "n" in event}
    for position, event in enumerate(events):
        event["n"] = position - 1
        if event["event"] == "backward":
            event["forwards"] = [new.get(place, place) for place in event["forwards"]]
    return events


def of(events: Events, *kinds: str) -> Events:
    return [event for event in events if event["event"] in kinds]


def first(events: Events, kind: str) -> dict[str, Any]:
    return of(events, kind)[0]


def attack(
    subject: Any, claim: str, plan: Plan, edit: Callable[[Events], None], ranks: int = 1, *, hint: bool = False
) -> None:
    """Check that every claim accepts a correct run, and that a claim finds an edit of its trace.

    Args:
        subject: The module with `judge` and `run_of`.
        claim: The id that must be falsified, or have a hint with `hint`.
        plan: The correct run.
        edit: Changes the trace of the last rank.
        ranks: Number of ranks of the run.
    """
    correct = traces(plan, ranks)
    accepted = subject.judge(subject.run_of(copy.deepcopy(correct), complete=True))
    accused = {name: record.findings for name, record in accepted.items() if record.findings}
    assert accused == {}, f"a correct run is accused: {accused}"
    edit(correct[-1])
    numbered(correct[-1])
    record = subject.judge(subject.run_of(correct, complete=True))[claim]
    found = [finding for finding in record.findings if finding.hint == hint]
    assert found, (
        f"the edit is not found by {claim}, which tried {record.tried} and says {record.not_reached or 'nothing'}"
    )


@given(plans())
def falsify_gradients_are_cleared(subject: Any, plan: Plan) -> None:
    def keep(events: Events) -> None:
        second = of(events, "backward")[len(plan.epochs[0][0])]
        second["reached"]["1"].update(left_over=1.0, kept=1.0)

    attack(subject, "TR-GRAD-001", plan, keep)


@given(plans())
def falsify_step_has_its_backward_pass(subject: Any, plan: Plan) -> None:
    def step_twice(events: Events) -> None:
        step = of(events, "step")[1]
        events.insert(events.index(step) + 1, dict(step))

    attack(subject, "TR-GRAD-002", plan, step_twice)


@given(plans())
def falsify_gradients_arrive(subject: Any, plan: Plan) -> None:
    def clear_late(events: Events) -> None:
        for step in of(events, "step"):
            step.update(norm=None, gradients=0)
            events.insert(events.index(step), {"event": "zero", "optimizers": [1], "at": "t.py:6"})

    attack(subject, "TR-GRAD-003", plan, clear_late)


@given(plans())
def falsify_gradients_are_used(subject: Any, plan: Plan) -> None:
    def clear_each(events: Events) -> None:
        for event in of(events, "backward"):
            event["reached"]["1"]["left_over"] = 0.0

    attack(subject, "TR-GRAD-004", plan, clear_each, hint=True)


@given(plans())
def falsify_gradients_are_finite(subject: Any, plan: Plan) -> None:
    def apply_nan(events: Events) -> None:
        for step in of(events, "step")[2:]:
            step.update(norm=float("nan"), digest=float("nan"), by_scaler=False)

    attack(subject, "TR-NAN-001", Plan(plan.epochs, 1.0, plan.clip, plan.logits), apply_nan)


def reweigh(events: Events, weight: Callable[[int, int, float], float]) -> None:
    """Set the weights of all losses: `weight(micro-batches of the step, elements, weight)` is the new one."""
    waiting: Events = []
    for event in of(events, "backward", "step"):
        if event["event"] == "backward":
            waiting.append(event)
            continue
        for backward in waiting:
            for loss in backward["losses"]:
                new = weight(len(waiting), loss["elements"], loss["weight"])
                loss.update(weight=new, low=new, high=new)
            for loss in backward["logits"]:
                new = weight(len(waiting), loss["elements"], loss["weights"]["low"])
                loss["weights"].update(low=new, high=new)
        waiting = []


@given(plans())
def falsify_elements_weigh_alike(subject: Any, plan: Plan) -> None:
    def mean_of_means(events: Events) -> None:
        reweigh(events, lambda count, elements, _: plan.scale / count / elements)

    unequal = sum(max(map(sum, w)) > 1.1 * min(map(sum, w)) for epoch in plan.epochs for w in epoch if len(w) > 1)
    assume(unequal * 2 >= sum(len(w) > 1 for epoch in plan.epochs for w in epoch) and unequal >= 2)
    attack(subject, "TR-WEIGHT-001", plan, mean_of_means)


@given(plans())
def falsify_short_window_has_its_weight(subject: Any, plan: Plan) -> None:
    full = max(len(window) for window in plan.epochs[0])

    def divide_by_planned(events: Events) -> None:
        reweigh(events, lambda count, _, weight: weight * count / full)

    attack(subject, "TR-WEIGHT-002", plan, divide_by_planned)


def whole_windows(plan: Plan) -> Plan:
    return Plan(tuple(epoch[:-1] for epoch in plan.epochs), plan.scale, plan.clip, plan.logits)


@given(plans(), st.booleans())
def falsify_micro_batches_are_averaged_once(subject: Any, plan: Plan, twice: bool) -> None:
    def divide(events: Events) -> None:
        reweigh(events, lambda count, _, weight: weight / count if twice else weight * count)

    attack(subject, "TR-WEIGHT-003", whole_windows(plan), divide, hint=True)


@given(plans())
def falsify_total_weight_is_constant(subject: Any, plan: Plan) -> None:
    def add_up(events: Events) -> None:
        reweigh(events, lambda *_: plan.scale)

    totals = [sum(map(sum, window)) for epoch in plan.epochs for window in epoch if len(window) == len(epoch[0])]
    assume(max(totals) > 1.05 * min(totals))
    attack(subject, "TR-WEIGHT-004", plan, add_up, hint=True)


@given(plans(ranks=2))
def falsify_ranks_weigh_alike(subject: Any, plan: Plan) -> None:
    def own_mean(events: Events) -> None:
        reweigh(events, lambda count, elements, weight: weight * 1.5)

    attack(subject, "TR-WEIGHT-005", plan, own_mean, ranks=2, hint=True)


@given(plans(ranks=2))
def falsify_world_size_divides_once(subject: Any, plan: Plan) -> None:
    """Both ranks are edited: the weights of one already sum to less than 2."""
    correct = traces(plan, 2)
    for events in correct:
        reweigh(events, lambda _, __, weight: weight / 2)
    record = subject.judge(subject.run_of(correct, complete=True))["TR-WEIGHT-006"]
    assert record.findings, "weights that sum to 1 over two ranks, before their mean, are not found"
    assert not subject.judge(subject.run_of(traces(plan, 2), complete=True))["TR-WEIGHT-006"].findings


def move_clips(events: Events, place: Callable[[Events, int, int], int]) -> None:
    """Move every clipping: `place(events, first backward pass, step)` is where it goes, by position."""
    start = 0
    for clip in of(events, "clip"):
        events.remove(clip)
        positions = [i for i, event in enumerate(events) if event["event"] == "backward" and i >= start]
        step = next(i for i, event in enumerate(events) if event["event"] == "step" and i > positions[0])
        events.insert(place(events, positions[0], step), clip)
        start = step + 1
    numbered(events)


@given(plans(), st.booleans())
def falsify_clipping_comes_last(subject: Any, plan: Plan, after_step: bool) -> None:
    plan = Plan(tuple(epoch[:-1] for epoch in plan.epochs), 1.0, True, plan.logits)

    def move(events: Events) -> None:
        move_clips(events, lambda _, backward, step: step + 1 if after_step else backward + 1)
        for event in of(events, "backward"):
            event["reached"]["1"]["onto_clipped"] = 8 * (event["reached"]["1"]["left_over"] > 0)

    attack(subject, "TR-CLIP-001", plan, move)


@given(plans())
def falsify_clipped_gradient_is_unscaled(subject: Any, plan: Plan) -> None:
    def before_unscale(events: Events) -> None:
        for event in of(events, "clip"):
            event["scale"] = 1024.0

    attack(subject, "TR-CLIP-002", Plan(plan.epochs, 1024.0, True, plan.logits), before_unscale)


@given(plans())
def falsify_clipping_covers_parameters(subject: Any, plan: Plan) -> None:
    def empty(events: Events) -> None:
        for event in of(events, "clip"):
            event.update(parameters=0, used_up=True, covers={"1": [0, 8]})

    attack(subject, "TR-CLIP-003", Plan(plan.epochs, plan.scale, True, plan.logits), empty)


@given(plans())
def falsify_applied_gradient_is_unscaled(subject: Any, plan: Plan) -> None:
    def bypass(events: Events) -> None:
        events[:] = [event for event in events if event["event"] != "unscale"]
        for event in of(events, "step"):
            event["by_scaler"] = False

    attack(subject, "TR-SCALE-001", Plan(plan.epochs, 1024.0, False, plan.logits), bypass)


@given(plans(), st.booleans())
def falsify_optimizer_holds_the_model(subject: Any, plan: Plan, twin: bool) -> None:
    def replace(events: Events) -> None:
        first(events, "held").update(in_no_model=1, in_no_model_shapes=[[4, 3]])
        if twin:
            first(events, "parameters").update(held=7, left_out=["head.weight"], left_out_shapes=[[4, 3]])

    attack(subject, "TR-PARAM-001", plan, replace, hint=not twin)


def lacking(**facts: Any) -> Callable[[Events], None]:
    """Return an edit of what the observer notes of the parameters of the model."""
    return lambda events: first(events, "parameters").update(facts)


@given(plans())
def falsify_trainable_parameters_are_held(subject: Any, plan: Plan) -> None:
    edit = lacking(held=7, left_out=["head.weight"], left_out_shapes=[[4, 3]])
    attack(subject, "TR-PARAM-002", plan, edit, hint=True)


@given(plans())
def falsify_layers_belong_to_the_model(subject: Any, plan: Plan) -> None:
    attack(subject, "TR-PARAM-003", plan, lacking(outside=["Linear.weight"]), hint=True)


@given(plans())
def falsify_layers_get_gradients(subject: Any, plan: Plan) -> None:
    attack(subject, "TR-PARAM-006", plan, lacking(without_gradient=["encoder.weight"]), hint=True)


def moving(**facts: Any) -> Callable[[Events], None]:
    """Return an edit of what the observer notes of the parameters that steps move."""

    def edit(events: Events) -> None:
        for event in of(events, "step"):
            if "moved" in event:
                event["moved"].update(facts)

    return edit


@given(plans())
def falsify_parameters_move(subject: Any, plan: Plan) -> None:
    attack(subject, "TR-PARAM-004", plan, moving(unmoved=["encoder.weight"]))


@given(plans())
def falsify_frozen_parameters_stay(subject: Any, plan: Plan) -> None:
    attack(subject, "TR-PARAM-005", plan, moving(moved_frozen=["encoder.weight"]))


@given(plans())
def falsify_schedule_belongs_to_the_optimizer(subject: Any, plan: Plan) -> None:
    def another(events: Events) -> None:
        first(events, "scheduler")["optimizers"] = [9]
        events.append({**first(events, "held"), "optimizer": 9, "steps": 0, "shares_with": [1]})

    attack(subject, "TR-RATE-001", plan, another)


@given(plans())
def falsify_schedule_advances(subject: Any, plan: Plan) -> None:
    def never(events: Events) -> None:
        events[:] = [event for event in events if event["event"] != "schedule"]

    attack(subject, "TR-RATE-002", plan, never)


@given(plans())
def falsify_schedule_follows_the_step(subject: Any, plan: Plan) -> None:
    def before(events: Events) -> None:
        for event in of(events, "schedule"):
            position = events.index(event)
            events[position - 1 : position + 1] = [event, events[position - 1]]

    attack(subject, "TR-RATE-003", plan, before)


@given(plans())
def falsify_schedule_advances_once_a_step(subject: Any, plan: Plan) -> None:
    def per_micro_batch(events: Events) -> None:
        events[:] = [event for event in events if event["event"] != "schedule"]
        for event in of(events, "backward"):
            place = next(i for i, other in enumerate(events) if other is event)
            events.insert(place + 1, {"event": "schedule", "scheduler": 3, "explicit": False, "at": "t.py:5"})

    attack(subject, "TR-RATE-004", plan, per_micro_batch)


@given(plans())
def falsify_schedule_ends_with_the_run(subject: Any, plan: Plan) -> None:
    def in_micro_batches(events: Events) -> None:
        full = max(len(window) for window in plan.epochs[0])
        first(events, "scheduler")["planned"]["T_max"] *= full
        evaluation = ("evaluation_loss", "mode")
        events[:] = [e for e in events if e.get("loader") != TEST and e["event"] not in evaluation]

    attack(subject, "TR-RATE-005", plan, in_micro_batches)


@given(plans())
def falsify_training_is_in_training_mode(subject: Any, plan: Plan) -> None:
    def stay(events: Events) -> None:
        evaluated = False
        for event in of(events, "mode", "forward"):
            if event["event"] == "mode":
                evaluated = True
            elif evaluated and event["grad"]:
                event.update(training_layers=0, eval_layers=2, training=False)

    attack(subject, "TR-MODE-001", plan, stay)


@given(plans())
def falsify_evaluation_is_in_eval_mode(subject: Any, plan: Plan) -> None:
    def forget(events: Events) -> None:
        for event in of(events, "forward"):
            event.update(training_layers=2, eval_layers=0, training=True)

    attack(subject, "TR-MODE-002", plan, forget)


def operands(function: str, **facts: Any) -> Callable[[Events], None]:
    """Return an edit of what the observer notes of the arguments of a loss function."""

    def edit(events: Events) -> None:
        first(events, "evaluation_loss").update(function=function, operands={"shapes": [[4, 9], [4]], **facts})

    return edit


@given(plans(), st.booleans())
def falsify_logits_are_logits(subject: Any, plan: Plan, binary: bool) -> None:
    function = "binary_cross_entropy_with_logits" if binary else "cross_entropy"
    edit = operands(function, made_by="SigmoidBackward0" if binary else "SoftmaxBackward0")
    attack(subject, "TR-LOSS-001", plan, edit)


@given(plans(), st.booleans())
def falsify_log_probabilities(subject: Any, plan: Plan, target: bool) -> None:
    scores = operands("nll_loss", made_by="AddmmBackward0", log_sum_exp=3.0, gradients_cancel=False)
    negative = operands("kl_div", made_by="LogSoftmaxBackward0", log_sum_exp=0.0, lowest_target=-2.0)
    attack(subject, "TR-LOSS-002", plan, negative if target else scores)


@given(plans())
def falsify_operands_have_one_shape(subject: Any, plan: Plan) -> None:
    edit = operands("mse_loss", made_by="", shapes=[[8, 1], [8]], broadcast=64, pairs=False)
    attack(subject, "TR-LOSS-003", plan, edit)


@given(plans())
def falsify_loaded_weights_are_a_copy(subject: Any, plan: Plan) -> None:
    def alias(events: Events) -> None:
        first(events, "load")["same_storage"] = 8

    attack(subject, "TR-LOAD-001", plan, alias)


@given(plans())
def falsify_something_is_loaded(subject: Any, plan: Plan) -> None:
    def prefix(events: Events) -> None:
        of(events, "load")[1].update(missing_count=8, unexpected=["module.a"], unexpected_count=8)

    attack(subject, "TR-LOAD-002", plan, prefix)


@given(plans(ranks=2), st.booleans())
def falsify_ranks_have_the_same_weights(subject: Any, plan: Plan, wrapped: bool) -> None:
    def drift(events: Events) -> None:
        for event in of(events, "step")[2:]:
            event["digest"] += 1e-3
        if not wrapped:
            events[:] = [event for event in events if event["event"] != "ddp"]

    attack(subject, "TR-RANK-001", plan, drift, ranks=2)


@given(plans(ranks=2))
def falsify_ranks_have_different_examples(subject: Any, plan: Plan) -> None:
    inputs = [event["inputs"] for event in of(traces(plan, 2)[0], "forward")]

    def same(events: Events) -> None:
        for event, values in zip(of(events, "forward"), inputs, strict=True):
            event["inputs"] = values

    attack(subject, "TR-RANK-002", plan, same, ranks=2)
