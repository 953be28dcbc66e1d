"""The attacks on the claims: Hypothesis draws traces of correct runs, which every claim must accept, and edits them.

A drawn run accumulates gradients over micro-batches of unequal sizes, with a short last window in every epoch, perhaps
under a loss scaler, with clipping, a schedule, an evaluation after every epoch, and on several ranks. Each edit of the
trace is what the observer would have noted of one mistake.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
            add("schedule", scheduler=3, explicit=False, epoch=step, at="t.py:8")
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
        add("after_load", kind="Net", compared=4, changed=[], tied=1, untied=[], untied_equal=[], at="t.py:9")
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
