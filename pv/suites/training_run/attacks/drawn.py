"""Traces of correct runs, drawn by Hypothesis, and `attack`: a claim must accept a trace, and detect an edited one.

A drawn run accumulates gradients over micro-batches of unequal sizes, with a short last window in every epoch, a
schedule, and an evaluation after every epoch. It may have a loss scaler, clipping, and several ranks. An edit changes
the trace as one mistake in the script would change it.
"""

import base64
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from hypothesis import strategies as st

from pv.suites.training_run.claim import Record

Event = dict[str, Any]
Events = list[Event]
LOSS = "cross_entropy"
TRAIN, TEST = 11, 12
"""Numbers of the loaders of a drawn run. Its model has number 2, its optimizer 1, its schedule 3."""
TEACHER, AVERAGE, PLATEAU = 4, 6, 33
"""Numbers of a frozen model with the inputs of the trained model, an average of weights, and a ReduceLROnPlateau."""
TEST_ROWS = (4, 4, 4, 2)
"""Numbers of rows in the batches of an evaluation. Every row has two scored elements."""
TESTED = range(80, 80 + sum(TEST_ROWS))
"""Indices of the evaluated examples. Examples 0 to 79 of the same data set are trained on."""


def evaluated_losses(epoch: int, rank: int = 0) -> list[float]:
    """Return the loss of every batch in the evaluation of one rank after an epoch."""
    return [rank + value for value in (2.1 / epoch, 1.7, 2.4 - 0.2 * epoch, 1.1 + 0.7 * epoch)]


def window_loss(step: int) -> float:
    """Return the loss of every micro-batch of a step."""
    return 2.0 + 1 / step


@dataclass(frozen=True, slots=True)
class Plan:
    """A correct run.

    Attributes:
        epochs: Numbers of scored elements, by epoch, step, micro-batch and rank.
        scale: The factor of the loss scaler; 1 without one.
        clip: Whether gradients are clipped, after they are complete and unscaled.
        logits: Whether losses are known only by their logits.
        stream: Whether two workers divide a stream; otherwise a sampler draws the order of the examples.
    """

    epochs: tuple[tuple[tuple[tuple[int, ...], ...], ...], ...]
    scale: float
    clip: bool
    logits: bool
    stream: bool


@st.composite
def plans(draw: st.DrawFn, *, ranks: int = 1, least: int = 2) -> Plan:
    """Draw a run of two or three epochs; the last step of an epoch has fewer micro-batches.

    Args:
        draw: Draws a value from a strategy.
        ranks: Number of ranks.
        least: Smallest number of micro-batches of the other steps, 2 or 3.
    """
    full = draw(st.integers(least, 3))
    sizes = st.tuples(*[st.integers(5, 60)] * ranks)
    steps = draw(st.integers(3, 5))
    epoch = st.tuples(*[st.tuples(*[sizes] * full)] * steps, st.tuples(*[sizes] * (full - 1)))
    epochs = tuple(draw(epoch) for _ in range(draw(st.integers(2, 3))))
    return Plan(
        epochs,
        scale=draw(st.sampled_from([1.0, 1024.0, 65536.0])),
        clip=draw(st.booleans()),
        logits=draw(st.booleans()) and ranks == 1,
        stream=draw(st.booleans()) and ranks == 1,
    )


def traces(plan: Plan, ranks: int = 1) -> list[Events]:
    """Return the traces of a run, one list of events per rank."""
    return [_trace(plan, rank, ranks) for rank in range(ranks)]


def _trace(plan: Plan, rank: int, ranks: int) -> Events:
    """Return the events of one rank."""
    run = _Run(plan, rank, ranks)
    run.construct()
    run.construct_loaders()
    for index, epoch in enumerate(plan.epochs, 1):
        run.add("pass", loader=TRAIN, index=index, epoch=index - 1 if ranks > 1 else None, direct=True, at="t.py:3")
        for window in epoch:
            run.train_step(window)
        run.end_pass(index, sum(map(len, epoch)))
        run.evaluate(index)
        run.save_and_load()
    run.end()
    return numbered(run.events)


class _Run:
    """Builds the trace of one rank of a correct run; its methods append events in their order.

    Attributes:
        step: Number of the current step; 0 before the first.
        forwards: Number of micro-batches so far in the run.
    """

    def __init__(self, plan: Plan, rank: int, ranks: int) -> None:
        self.plan, self.rank, self.ranks = plan, rank, ranks
        self.step = self.forwards = 0
        self.events: Events = [{"event": "start", "schema": "pv-trace/1", "rank": rank, "world_size": ranks}]

    def add(self, event: str, **fields: object) -> None:
        """Append an event."""
        self.events.append({"event": event, **fields})

    def frozen_forward(self, model: int, number: int) -> None:
        """Add a forward of a frozen model in eval mode; `number` identifies its inputs."""
        inputs = [hash((number, self.rank, True)) % 99991]
        fields = {"loader": TRAIN, "grad": False, "times": 1, "rows": [4], "inputs": inputs, "wrapped": False}
        layers = {"training_layers": 0, "eval_layers": 2, "training": False, "dropouts": 0}
        self.add("forward", model=model, at="t.py:3", **layers, **fields)

    def forward(self, number: int, *, loader: int, grad: bool) -> None:
        """Add a forward of the trained model, in training mode if `grad`; `number` identifies its inputs."""
        layers = {"training_layers": 2 * grad, "eval_layers": 2 - 2 * grad, "training": grad, "dropouts": int(grad)}
        inputs = [hash((number, self.rank if grad else 0, grad)) % 99991]
        self.add(
            "forward",
            model=2,
            loader=loader,
            grad=grad,
            times=1,
            rows=[4],
            inputs=inputs,
            scales=[[0.0, 1.0, -2.0, 2.0]],
            wrapped=self.ranks > 1,
            at="t.py:3",
            **layers,
        )

    def construct(self) -> None:
        """Add the optimizer, the models and the schedules."""
        self.add(
            "optimizer",
            optimizer=1,
            kind="AdamW",
            builtin=True,
            parameters=8,
            rates=[0.2],
            at="t.py:1",
            again=1,
            moments=True,
        )
        self.add("model", model=2, kind="Net")
        self.add("model", model=TEACHER, kind="Teacher")
        for number in (2, TEACHER):
            self.add("network", model=number, trained=number == 2, gradients=0, version=0, shapes=number)
        for number in range(2):
            self.add("spectral_norm", model=2, layer="Linear", norms=[1.9, 2.0], input=number, at="t.py:2")
        self.add(
            "scheduler",
            scheduler=3,
            kind="CosineAnnealingLR",
            optimizers=[1],
            planned={"T_max": sum(map(len, self.plan.epochs))},
            rates=[0.2],
            base_rates=[0.2],
            at="t.py:2",
        )
        self.add(
            "scheduler",
            scheduler=PLATEAU,
            kind="ReduceLROnPlateau",
            optimizers=[1],
            planned={},
            mode="min",
            rates=[0.2],
            base_rates=[],
            at="t.py:2",
        )

    def construct_loaders(self) -> None:
        """Add the loaders of training and evaluation."""
        plan, ranks = self.plan, self.ranks
        loader: Event = {"at": "t.py:3", "made_at": "t.py:2", "split": None, "batch": 4, "weights": None}
        loader.update(drop_last=False, replacement=False, set_epoch=ranks > 1)
        train: dict[str, object] = {
            "sampler": "DistributedSampler" if ranks > 1 else "RandomSampler",
            "random": True,
            "dataset": "Examples",
        }
        if plan.stream:
            train = {"sampler": "_InfiniteConstantSampler", "random": None, "dataset": "Stream"}
        self.add(
            "loader",
            loader=TRAIN,
            data=21,
            base=23,
            examples=None if plan.stream else 80,
            base_examples=TESTED.stop,
            iterable=plan.stream,
            readable=None if plan.stream else readable(range(80)),
            replicas=ranks if ranks > 1 else None,
            **train,
            **loader,
        )
        self.add(
            "loader",
            loader=TEST,
            data=22,
            base=23,
            examples=len(TESTED),
            base_examples=TESTED.stop,
            iterable=False,
            dataset="Examples",
            readable=readable(TESTED),
            sampler="SequentialSampler",
            random=False,
            replicas=None,
            **loader,
        )
        if ranks > 1:
            self.add("ddp", group=ranks, at="t.py:2")

    def train_step(self, window: tuple[tuple[int, ...], ...]) -> None:
        """Add a step: its micro-batches, clipping, update, advance of the schedule, and report."""
        self.step += 1
        self.add("zero", optimizers=[1], at="t.py:3")
        for position, sizes in enumerate(window):
            self.micro_batch(position, sizes[self.rank], total=sum(map(sum, window)))
        self.clip()
        self.update()
        step = self.step
        if step == 3:
            self.events.extend(_probes())
        rounded = [100, 60, 90, 0.9]  # as for the rounded copy of an average in float32
        values = {"share": 0.01, "rounded": rounded}
        self.add("average", average=5, kind="Net", since="step", until="backward", step=step, **values)
        self.add("schedule", scheduler=3, explicit=False, epoch=step, at="t.py:8")
        numbers = {"loss": f"{window_loss(step):.5f}", "norm": f"{2.0 + step / 7:.5f}"}
        self.add("report", by="add_scalar", at="t.py:8", key=8, numbers=numbers)

    def micro_batch(self, position: int, size: int, total: int) -> None:
        """Add a forward and a backward pass.

        Args:
            position: Number of the micro-batch in its step, from 0.
            size: Number of scored elements on this rank.
            total: Number of scored elements in the step, on all ranks.
        """
        self.forwards += 1
        plan, ranks, step, forwards = self.plan, self.ranks, self.step, self.forwards
        self.frozen_forward(TEACHER, forwards)
        forward_position = len(self.events) - 1
        self.forward(forwards, loader=TRAIN, grad=True)
        if step == 1:  # facts about a normalization layer that runs twice, and about a frozen part
            apart = {"shift": 0.1, "spread": 1.1}
            shared = {"layer": "norm", "calls": 2, "layers": 1, "serial": False}
            self.add("shared_norm", model=2, apart=apart, at="t.py:3", **shared)
            asked = {"at": "t.py:1", "forwards": 0}
            last = {**asked, "training": False}
            reached = {"asked_training": False, "reached_by_training": False, "last": last}
            part = {"model": 2, "part": "body", "layers": 2, "training": 0, "fixed_inputs": True}
            self.add("frozen_part", asked_eval=asked, at="t.py:3", **part, **reached)
        # The factor `ranks` compensates for the mean over ranks that DDP takes.
        weight = ranks * plan.scale / total
        operands = {"made_by": "AddmmBackward0", "shapes": [[4, 9], [4]]} if step == 1 and not position else None
        counts = {"reduction": "mean", "elements": size, "labels": size}
        loss = {"function": LOSS, "at": "t.py:4", "key": 5, **counts, "value": window_loss(step), "operands": operands}
        if forwards <= 4:
            self.add("labels", at="t.py:4", key=5, model=2, facts=_labels(forwards))
        scored_loss = [{**loss, "weight": weight, "low": weight, "high": weight}]
        fit = {"sampled": min(64, size), "fitting": min(64, size), "low": weight, "high": weight}
        at_logits = [{"model": 2, "elements": size, "weights": fit}]
        left_over = float(position > 0)
        reached = {"1": {"left_over": left_over, "kept": left_over, "written": step, "onto_clipped": 0}}
        scale = plan.scale if plan.scale > 1 else None
        value = weight * size * window_loss(step) + 0.5 * plan.scale  # the loss has a constant term, a flood level
        metric = {"key": 91, "at": "t.py:4", "value": 1.0 + forwards % 7}
        self.add(
            "backward",
            root={"value": value, "losses": [5], "cut": [metric]},
            reached=reached,
            losses=[] if plan.logits else scored_loss,
            logits=at_logits,
            forwards=[forward_position],
            scale=scale,
            at="t.py:5",
        )

    def clip(self) -> None:
        """Unscale and clip the gradients, if the plan has a loss scaler or clipping."""
        plan, ranks, step = self.plan, self.ranks, self.step
        if plan.scale > 1:
            self.add("unscale", optimizer=1)
        if plan.clip:
            self.add(
                "clip",
                kind="clip_grad_norm_",
                limit=1.0,
                norm=2.0 + step / 7,
                covers={"1": [8, 8]},
                scale=None,
                parameters=8,
                flat_shards=8 * (ranks > 1),
                held=8,
                with_gradient=8,
                used_up=False,
                at="t.py:6",
            )

    def update(self) -> None:
        """Add the step of the optimizer."""
        plan, rank, ranks, step = self.plan, self.rank, self.ranks, self.step
        moved = {"checked": 8, "moved": 8, "unmoved": [], "unmoved_contiguous": 0, "moved_frozen": [], "frozen": 1}
        moved |= {"marks": 1, "marked": [], "zero_matrices": [["lora.b", [8, 2]]], "halves": [90, 80]}
        fields: Event = {"moved": moved} if step <= 3 else {}
        if ranks > 1:  # the mean over ranks, unscaled and clipped
            fields["local_gradient"] = [plan.scale * (part + step) for part in (rank, -2.0 * rank, 1.0)]
            factor = 1 / (2.0 + step / 7 + 1e-6) if plan.clip else 1.0
            sums = (sum(range(ranks)) + ranks * step, ranks * step - 2.0 * sum(range(ranks)), ranks * (1 + step))
            fields["gradient"] = [factor * part / ranks for part in sums]
        self.add(
            "step",
            optimizer=1,
            step=step,
            rates=[0.1],
            norm=1.0 + step,
            gradients=8,
            modified=False,
            digest=float(step),
            by_scaler=plan.scale > 1,
            wraps=False,
            at="t.py:7",
            **fields,
        )

    def end_pass(self, index: int, batches: int) -> None:
        """End a training epoch: add the records of workers, the rows, and the end of the pass."""
        stream = self.plan.stream
        self.add("averaged_model", equal=True, statistics=2, at="t.py:8")
        # Two workers whose generators have different states. The state of `random` changes with every batch, the state
        # of `numpy.random` never.
        for worker in range(2):
            for batch in range(4):
                states = {"random": 1000 * index + 100 * worker + batch, "numpy.random": 7 + worker}
                rows = {"rows": [8 * (2 * batch + worker) + row for row in range(8)]} if stream and batch else {}
                self.add("worker", loader=TRAIN, index=index, worker=worker, batch=batch, states=states, **rows)
        for made in ([4.0, 7.0], [5.0]):
            self.add(
                "removed_column", loader=TRAIN, index=index, column="length", removed=[3.0, 6.0], made=made, rows=4
            )
        self.add("rows", loader=TRAIN, index=index, divisor=1, count=80, prints=list(range(80)))
        ended = {"labels": None, "draws": True, "stored": [0 if stream else 8, 0]}
        self.add(
            "pass_end",
            loader=TRAIN,
            index=index,
            batches=batches,
            rows=80,
            order=None if stream else index,
            distinct=None,
            content=index,
            **ended,
        )

    def evaluate(self, index: int) -> None:
        """Add the evaluation after an epoch, its report, and the advance of ReduceLROnPlateau."""
        rank, ranks = self.rank, self.ranks
        self.add("mode", model=2, training=False, before=True, at="t.py:9")
        self.add("pass", loader=TEST, index=index, epoch=None, direct=True, at="t.py:9")
        for batch, (count, value) in enumerate(zip(TEST_ROWS, evaluated_losses(index, rank), strict=True)):
            self.forward(4 * index + batch, loader=TEST, grad=False)
            facts = {"reduction": "mean", "elements": 2 * count, "labels": 2 * count, "value": value, "rows": count}
            self.add("evaluation_loss", function=LOSS, at="t.py:9", key=6, **facts)
        labels = {"batches": 4, "one_label": 0, "distinct": 3, "sorted": False}
        self.add("rows", loader=TEST, index=index, divisor=1, count=len(TESTED), prints=list(TESTED))
        self.add(
            "pass_end",
            loader=TEST,
            index=index,
            batches=len(TEST_ROWS),
            rows=len(TESTED),
            order=5,
            distinct=None,
            content=6,
            stored=[8, 0],
            draws=False,
            labels=labels,
        )
        parts = [zip(TEST_ROWS, evaluated_losses(index, part), strict=True) for part in range(ranks)]
        summed = sum(count * value for part in parts for count, value in part)
        numbers = {"loss": f"{summed / sum(TEST_ROWS) / ranks:.5f}", "rate": "0.001"}
        self.add("report", by="print", at="t.py:10", key=7, numbers=numbers)
        # ReduceLROnPlateau gets the exponential of the loss of this rank, as in some scripts, and then the loss.
        rank_loss = sum(map(math.prod, zip(TEST_ROWS, evaluated_losses(index, rank), strict=True))) / sum(TEST_ROWS)
        for metric in (math.exp(rank_loss), rank_loss):
            self.add("schedule", scheduler=PLATEAU, explicit=True, epoch=index, metric=metric, at="t.py:9")
        self.add("choice", by="ModelCheckpoint", name="val_loss", mode="min", value=rank_loss, at="t.py:9")
        updates = {"trained": 0, "evaluated": [len(TEST_ROWS)], "computed": 0, "sources": 1}
        self.add("metric", metric=7, kind="BinaryAccuracy", aggregates=False, at="t.py:9", **updates)

    def save_and_load(self) -> None:
        """Add a save and two loads: of all weights into the trained model, and of a part into another model."""
        step, taken = self.step, self.step - 1
        source = {"taken_at_step": taken, "taken_at": "t.py:9", "captures": 2, "uses": 1, "unused": 0, "shared": True}
        parts = ["model", "optimizer", "scheduler"]
        self.add("save", parts=parts, step=step, stateful=True, sources=[dict(source)], at="t.py:9")
        read = {"kind": "Net", "tensors": 8, "same_storage": 0, "step": step, "file": "t.py:9", "unused_file": None}
        read |= {"prefix": "", "renamed": 0, "first_name": "a", "written": False, "at": "t.py:9"}
        for strict, missing in ((True, 0), (False, 6)):
            names: dict[str, object] = {"missing": ["a"] * missing, "unexpected": [], "untied": []}
            names |= {"missing_count": missing, "unexpected_count": 0}
            origin = {"taken_at_step": taken, "source": source | {"shared": False, "unused": 1}}
            origin = origin if strict else dict.fromkeys(origin)
            self.add("load", strict=strict, trained=strict, **read, **names, **origin)
        self.add("after_load", kind="Net", compared=4, changed=[], tied=1, untied=[], untied_equal=[], at="t.py:9")
        self.add("mode", model=2, training=True, before=False, at="t.py:9")

    def end(self) -> None:
        """Add the average of the weights, and the events that describe the whole run."""
        self.add("model", model=AVERAGE, kind="AveragedModel")
        self.add("update_bn", at="t.py:9")
        self.frozen_forward(AVERAGE, 0)
        for number in (2, AVERAGE):
            self.add("network", model=AVERAGE, trained=False, gradients=0, version=number, shapes=2)
            self.add("statistics", model=number, layers=2, average=False, initial=0, unusual=[])
        self.add("frozen_statistics", model=2, part="body", moved=0.0, frozen=True, written=False, trained=False)
        source = {"kind": "Normal", "at": "t.py:3", "sampled_at": "t.py:3", "samples": 9, "rsamples": 0, "log_probs": 9}
        self.add("distributions", sources=[source | {"used": 9, "arrived": 9, "alignment": 1.0}])
        autocast = {
            "layers": 4,
            "single": 0,
            "work": 8.0,
            "single_work": 0.0,
            "stock": 0,
            "half_after": False,
            "names": [],
        }
        facts: dict[str, object] = {
            "autocast": autocast,
            "with_gradient": 8,
            "compared": 8,
            "changed": 8,
            "cut": [],
            "cut_inputs": 1,
            "rows": [["body.weight", 16, 0.5, 0.1]],
            "one_storage": [],
            "untied": [["embed.weight", "head.weight", False, 0.4, True]],
            "last_layer": {"name": "head", "trained": True, "drawn": 1, "classes": 9, "matrices": 2}
            | {"frozen": 2, "frozen_drawn": 0},
        }
        lists: Event = {"left_out": [], "left_out_shapes": [], "outside": [], "without_gradient": []}
        self.add("parameters", model=2, trainable=8, held=8, **lists, **facts)
        held = {
            "parameters": 8,
            "in_no_model": 0,
            "in_no_model_shapes": [],
            "outside": 0,
            "outside_shapes": [],
            "names": 7,
        }
        self.add("saved", optimized=8, lacking=0, shapes=[], names=[])
        self.add("held", optimizer=1, steps=self.step, shares_with=[], in_ddp=8 * (self.ranks > 1), **held)


def _labels(batch: int) -> dict[str, object]:
    """Return the facts about a batch of texts: labels are next tokens, and padding with the end token is ignored."""
    counts = {"-1": [1, 54], "0": [2, 60], "1": [60, 60], "2": [3, 54]}
    padding = {
        "token": 1,
        "declared": "the mask",
        "positions": 12,
        "scored": 0,
        "used": 0,
        "label": None,
        "same_label_elsewhere": 0,
        "scored_elsewhere": 60,
        "ignored_elsewhere": 0,
        "in_texts": 6,
        "ends": [1],
    }
    masked = {"token": 3, "scored": 40, "elsewhere": 0, "labels": 0}
    ends = {
        "token": 1,
        "masked": True,
        "rows": 6,
        "width": 12 + batch,
        "shortest_padding": 0,
        "ends": 6,
        "scored_ends": 6,
        "scored_before": 6,
        "scored_anywhere": 6,
    }
    shift = [{"axis": 1, "counts": counts, "wraps": False}]
    facts = {"scored": 60, "kinds": 20, "shift": shift, "embeddings_train": True, "delivered": False}
    return {**facts, "padding": padding, "ends": ends, "masked": masked}


def _probes() -> Events:
    """Return the events of the probes of a causal language model."""
    base = {"event": "probe", "model": 2, "at": "t.py:3", "failed": None}
    seen = {"attention": {"causal": 2, "full": 0}, "recurrent": {"causal": 0, "full": 0}}
    reach = {"offset": 1, "token": 7, "early": 0.0, "own": 0.0, "same": 1.0, "late": 1.0, "clean": 7, "reach": 0}
    return [
        {
            **base,
            "probe": "attention",
            "attention": seen["attention"],
            "masks": 1,
            "masks_of_ones": 0,
            "mixed_heads": [],
        },
        {**base, "probe": "future", **reach, "local": True, **seen},
        {**base, "probe": "padding", "mask": True, "pooled": False, "real": 0.0, "mask_used": True, **seen}
        | {"other_tokens": 0.4},
        {**base, "probe": "rows", "language": True, "rows": 6, "same": 1.0, "others": 0.0, "changed_rows": 0}
        | {"routed": [], "rows_as_time": None},
    ]


CRITIC, GENERATOR = 21, 22
"""Numbers of the optimizers of an adversarial training. Its models have the numbers 23 and 24."""


def game() -> Events:
    """Return the trace of an adversarial training: four times a step of the critic, then a step of the generator."""
    events: Events = [{"event": "start", "schema": "pv-trace/1", "rank": 0, "world_size": 1}]
    for number, kind in ((CRITIC, "SGD"), (GENERATOR, "Adam")):
        fields = {"kind": kind, "builtin": True, "parameters": 2, "rates": [0.1], "at": "t.py:11"}
        events += [
            {"event": "optimizer", "optimizer": number, **fields},
            {"event": "model", "model": number + 2} | fields,
        ]
    layers = {"training_layers": 1, "eval_layers": 0, "training": True, "wrapped": False}
    for step in range(1, 5):
        # `pulled`: the sum of the gradient at the critic's output, by whether its input is a generated sample.
        for number, pulled in ((CRITIC, {False: -1.0, True: 1.0}), (GENERATOR, {True: -1.0})):
            events.append({"event": "zero", "optimizers": [number], "at": "t.py:12"})
            pulls = {}
            for generated, pull in pulled.items():
                pulls[str(len(events) - 1)] = pull
                forward = {"model": CRITIC + 2, "from_graph": generated, "grad": True, "at": "t.py:13", **layers}
                events.append({"event": "forward", "loader": None, "times": 1, "rows": [4], "inputs": [step]} | forward)
            fresh = {"left_over": 0.0, "kept": 0.0, "written": step, "onto_clipped": 0}
            reached = {str(optimizer): dict(fresh) for optimizer in {CRITIC, number}}
            backward = {"reached": reached, "forwards": [int(position) for position in pulls], "pulls": pulls}
            events.append({"event": "backward", "losses": [], "logits": [], "scale": None, "at": "t.py:14"} | backward)
            facts = {"modified": False, "by_scaler": False, "wraps": False, "gradients": 2, "rates": [0.1]}
            values = {"optimizer": number, "step": step, "norm": float(step), "digest": float(step), "at": "t.py:15"}
            events.append({"event": "step"} | values | facts)
    return numbered(events)


def readable(numbers: Iterable[int]) -> str:
    """Return indices of examples as the bitmap in the field `readable` of a `loader` event."""
    bits = sum(1 << number for number in numbers)
    return base64.b64encode(bits.to_bytes(12, "little")).decode()


def numbered(events: Events) -> Events:
    """Renumber the events of a trace after an edit, and adapt the references to events. Return the same list."""
    new = {event["n"]: position - 1 for position, event in enumerate(events) if "n" in event}
    for position, event in enumerate(events):
        event["n"] = position - 1
        if event["event"] == "backward":
            event["forwards"] = [new.get(n, n) for n in event["forwards"]]
            pulls = event.get("pulls", {})
            event["pulls"] = {str(new.get(int(n), int(n))): pull for n, pull in pulls.items()}
    return events


def of_kind(events: Events, *kinds: str) -> Events:
    """Return the events of the given kinds."""
    return [event for event in events if event["event"] in kinds]


def first(events: Events, kind: str) -> Event:
    """Return the first event of a kind."""
    return of_kind(events, kind)[0]


def attack(
    subject: ModuleType,
    claim: str,
    plan: Plan,
    edit: Callable[[Events], None],
    ranks: int = 1,
    *,
    hint: bool = False,
    in_game: bool = False,
) -> None:
    """Assert that a claim accepts a correct run and detects an edit of its trace.

    Only the claim and its premises are judged, so that only mutants of code that they execute are tried on the attack.

    Args:
        subject: The module `pv.suites.training_run.claims`; its `judge` and `run_of` are called.
        claim: The id of the claim.
        plan: The correct run.
        edit: Changes the trace of the last rank.
        ranks: Number of ranks of the run.
        hint: Whether the finding must be a hint; otherwise it must falsify the claim.
        in_game: Edit the trace of `game`, not of the planned run.

    Raises:
        AssertionError: The claim or one of its premises has a finding about the correct run, or the claim has no
            finding of the required kind about the edited run.
    """

    def build() -> list[Events]:  # built again for every use, since a deep copy takes longer
        return [game()] if in_game else traces(plan, ranks)

    accepted = subject.judge(subject.run_of(build(), complete=True), claim)
    accused = {name: record.findings for name, record in accepted.items() if record.findings}
    assert accused == {}, f"a correct run is accused: {accused}"
    edited = build()
    edit(edited[-1])
    numbered(edited[-1])
    record = subject.judge(subject.run_of(edited, complete=True), claim)[claim]
    findings = [finding for finding in record.findings if finding.hint == hint]
    assert findings, missed(claim, record, numbered(build()[-1]), edited[-1])


MAX_DIFFERENCES = 6
"""Largest number of differences in a message."""


def missed(claim: str, record: Record, correct: Events, edited: Events) -> str:
    """Return the message for an undetected edit, with the differences of the edited trace from the correct one."""
    lines = list(_differences(correct, edited))
    more = f"; and {len(lines) - MAX_DIFFERENCES} more" if len(lines) > MAX_DIFFERENCES else ""
    result = f"was not reached: {record.not_reached}" if record.not_reached else f"tried {record.tried} without finding"
    return (
        f"{claim} {result}, although the trace of a correct run was changed: {'; '.join(lines[:MAX_DIFFERENCES])}{more}"
    )


def _differences(correct: Events, edited: Events) -> Iterator[str]:
    """Yield the differences of two traces: numbers of events by kind, changed fields, and the first changed order."""
    kinds = dict.fromkeys(event["event"] for event in (*correct, *edited))
    for kind in kinds:
        before, after = of_kind(correct, kind), of_kind(edited, kind)
        if len(before) != len(after):
            yield f"{len(after)} events `{kind}` in place of {len(before)}"
            continue
        for number, (old, new) in enumerate(zip(before, after, strict=True), 1):
            for path, old_value, value in _changes(old, new, ()):
                if path != ("n",):
                    yield f"{'.'.join(path)} of `{kind}` {number} is {_short(value)} in place of {_short(old_value)}"
    first = next((i for i, (a, b) in enumerate(zip(correct, edited, strict=False)) if a["event"] != b["event"]), None)
    if first is not None:
        yield f"event {first} is `{edited[first]['event']}` in place of `{correct[first]['event']}`"


def _changes(old: object, new: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object, object]]:
    """Yield path, old value and new value of every difference between two JSON values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            yield from _changes(old.get(key), new.get(key), (*path, str(key)))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for position, pair in enumerate(zip(old, new, strict=True)):
            yield from _changes(*pair, (*path, str(position)))
    elif old != new:
        yield path, old, new


def _short(value: object) -> str:
    """Return the repr of a value, at most 60 characters long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
