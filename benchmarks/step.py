"""What the loop and its callbacks cost, against a bare PyTorch loop with the same models, batches and loss.

    python benchmarks/step.py [ROUNDS]

All variants run interleaved in one process, 10 optimizer steps each per round, from the same weights: medians of CPU
time. Two sizes: larger models, and models so small that little but the loop is left. Then the
loop's own CPU time, and, for the larger models, where the time of a step goes, and what its metrics add to it.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, TextIO
from unittest.mock import patch

import measuring
import torch
from torch.nn import functional as F

from reference_trainer.callbacks.base import Callback
from reference_trainer.callbacks.progress import Lines, ProgressCallback
from reference_trainer.callbacks.trace import TraceCallback
from reference_trainer.data.text import Sequences, epoch_order, read_text
from reference_trainer.distillation.losses import Weights, kd_logit_gradient, kd_loss
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import ModuleStudent, ModuleTeacher
from reference_trainer.distillation.step import kd_step
from reference_trainer.models.decoder import Decoder, DecoderConfig, new_decoder
from reference_trainer.plan.schedule import Schedule
from reference_trainer.training import update
from reference_trainer.training.loop import Objective, train
from reference_trainer.training.window import kd_window

STEPS, TAU, CE, KD = 10, 2.0, 0.3, 0.7
BARE = "bare PyTorch loop"


class Size:
    """Models and batches of one size."""

    def __init__(self, teacher: tuple[int, int], student: tuple[int, int], length: int, batch_size: int) -> None:
        self.teacher, self.student = (
            new_decoder(DecoderConfig(vocab_size=256, layers=layers, width=width, heads=max(1, width // 32)), seed)
            for seed, (layers, width) in enumerate((teacher, student))
        )
        text = read_text(None, length)
        self.sequences = Sequences(
            bytes_N=text.training, length=length, batch_size=batch_size, device=torch.device("cpu")
        )

    def batch(self, epoch: int, position: int) -> Batch:
        return self.sequences.batch(epoch_order(0, epoch, len(self.sequences)), position)


def bare(size: Size, student: Decoder) -> None:
    """What one writes without a library: autograd through the textbook loss, and one number read per step."""
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3, weight_decay=0.01)
    for position in range(1, STEPS + 1):
        batch = size.batch(1, position)
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            teacher = size.teacher(batch.tokens)[:, :-1].flatten(0, 1)
        logits = student(batch.tokens)[:, :-1].flatten(0, 1)
        hard = F.cross_entropy(logits, batch.labels[:, 1:].flatten())
        soft = F.kl_div(
            F.log_softmax(logits / TAU, -1), F.log_softmax(teacher / TAU, -1), log_target=True, reduction="batchmean"
        )
        loss = CE * hard + KD * TAU**2 * soft
        loss.backward()
        optimizer.step()
        loss.item()


def without_loop(size: Size, student: Decoder) -> None:
    """The work of `looped` without the loop: what remains of the difference is the loop's own cost."""
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3, weight_decay=0.01)
    teacher, learning = ModuleTeacher(size.teacher, 256), ModuleStudent(student, 256)
    for position in range(1, STEPS + 1):
        optimizer.zero_grad(set_to_none=True)
        kd_window(teacher, learning, [size.batch(1, position)], Weights(temperature=TAU, ce_weight=CE, kd_weight=KD))
        optimizer.step()


def looped(size: Size, student: Decoder, callbacks: list[Callback], steps: int = STEPS) -> None:
    train(
        ModuleTeacher(size.teacher, 256),
        ModuleStudent(student, 256),
        size.batch,
        torch.optim.AdamW(student.parameters(), lr=1e-3, weight_decay=0.01),
        schedule=Schedule(epochs=1, steps_per_epoch=steps),
        objective=Objective(temperature=TAU, ce_weight=CE, kd_weight=KD),
        learning_rate=lambda step: 1e-3,
        callbacks=callbacks,
    )


def variants(sink: TextIO) -> dict[str, Callable[[Size, Decoder], None]]:
    lines, trace = Lines(sink), TraceCallback(Path(os.devnull), force=True)
    return {
        BARE: bare,
        "kd_window and optimizer": without_loop,
        "loop, no callback": lambda size, student: looped(size, student, []),
        "loop, progress every 10": lambda size, student: looped(size, student, [ProgressCallback(10, lines=lines)]),
        "loop, progress every step": lambda size, student: looped(size, student, [ProgressCallback(1, lines=lines)]),
        "loop, progress and trace": lambda size, student: looped(
            size, student, [ProgressCallback(10, lines=lines), trace]
        ),
        "loop, 8 empty callbacks": lambda size, student: looped(size, student, [Callback() for _ in range(8)]),
    }


def compare(title: str, size: Size, rounds: int) -> None:
    """Print CPU time of a step."""
    with Path(os.devnull).open("w", encoding="utf-8") as sink:
        ways = variants(sink)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds + 1):
            for name, way in ways.items():
                student = deepcopy(size.student)
                began = time.process_time()
                way(size, student)
                times[name].append((time.process_time() - began) / STEPS)
    base = statistics.median(times[BARE][1:])
    print(f"\n| {title} | CPU ms a step | fastest, slowest | ratio |\n|---|---|---|---|")
    for name, (_, *taken) in times.items():
        median = statistics.median(taken)
        spread = f"{1e3 * min(taken):.2f}, {1e3 * max(taken):.2f}"
        print(f"| {name} | {1e3 * median:.2f} | {spread} | {median / base:.3f} |")


def own_cost(size: Size, rounds: int) -> None:
    """Print the CPU time of the loop alone: of a step without its batch, `kd_window` and the optimizer."""
    costs, spent = [], 0.0

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **named: Any) -> Any:
            nonlocal spent
            began = time.process_time()
            result = call(*args, **named)
            spent += time.process_time() - began
            return result

        run.__dict__["hooked"] = True  # an optimizer adds its hooks, which are part of its step, to a step without them
        return run

    for _ in range(rounds + 1):
        spent = 0.0
        with (
            patch.object(update, "kd_window", timed(kd_window)),
            patch.object(torch.optim.AdamW, "step", timed(torch.optim.AdamW.step)),
            patch.object(size, "batch", timed(size.batch)),
        ):
            student, began = deepcopy(size.student), time.process_time()
            looped(size, student, [], steps=10 * STEPS)
            costs.append(1e6 * (time.process_time() - began - spent) / (10 * STEPS))
    shown = f"{statistics.median(costs[1:]):.0f} (fastest {min(costs):.0f}, slowest {max(costs[1:]):.0f})"
    print(f"\nThe loop alone, tiny models: {shown} us of CPU time a step")


OBJECTIVES = {
    "the default, T = 1, KL alone": Weights(temperature=1.0, ce_weight=0.0, kd_weight=1.0),
    "T = 2, 0.3 and 0.7": Weights(temperature=TAU, ce_weight=CE, kd_weight=KD),
    "labels alone": Weights(temperature=1.0, ce_weight=1.0, kd_weight=0.0),
}


def metrics_cost(size: Size, rounds: int) -> None:
    """Print the CPU time of a step with all metrics, as in a run that logs, divided by the time of a step without."""
    student, batch = deepcopy(size.student), size.batch(1, 1)
    teacher, learning = ModuleTeacher(size.teacher, 256), ModuleStudent(student, 256)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3, weight_decay=0.01)

    def step(weights: Weights, *, metrics: bool) -> None:
        optimizer.zero_grad(set_to_none=True)
        kd_window(teacher, learning, [batch], weights, metrics=metrics)
        optimizer.step()

    ways = {"without": partial(step, metrics=False), "with": partial(step, metrics=True)}
    print("\n| objective | step with metrics | quartiles |\n|---|---|---|")
    for name, weights in OBJECTIVES.items():
        times = measuring.taken(weights, ways, rounds)
        pairs = zip(times["with"], times["without"], strict=True)
        low, median, high = statistics.quantiles((one.cpu / other.cpu for one, other in pairs), n=4)
        print(f"| {name} | {median:.3f} | {low:.3f}, {high:.3f} |")


def parts(size: Size, rounds: int) -> None:
    """Each part of a step on its own, interleaved; shares of the whole step."""
    batch, student = size.batch(1, 1), deepcopy(size.student)
    teacher, module = ModuleTeacher(size.teacher, 256), ModuleStudent(student, 256)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3, weight_decay=0.01)
    logits, answers, labels = module.forward(batch).logits[:, :-1], teacher.logits(batch)[:, :-1], batch.labels[:, 1:]
    weights: dict[str, Any] = {"temperature": TAU, "ce_weight": CE, "kd_weight": KD}
    gradient = torch.randn(*batch.tokens.shape, 256) / batch.tokens.numel()
    ways: dict[str, Callable[[], object]] = {
        "kd_step and optimizer step": lambda: (kd_step(teacher, module, batch, **weights), optimizer.step()),
        "teacher forward": lambda: teacher.logits(batch),
        "student forward and backward": lambda: module.forward(batch).backward(gradient),
        "loss": lambda: kd_loss(logits, answers, labels, **weights),
        "gradient": lambda: kd_logit_gradient(logits, answers, labels, **weights),
        "optimizer": optimizer.step,
        "batch": lambda: size.batch(1, 1),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds * 4):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(taken[2:]) for name, taken in times.items()}
    whole = medians["kd_step and optimizer step"]
    print("\n| part | ms | share |\n|---|---|---|")
    for name, median in medians.items():
        print(f"| {name} | {1e3 * median:.2f} | {median / whole:.0%} |")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    larger = Size((4, 192), (2, 64), 128, 16)
    compare("larger models", larger, rounds)
    compare("tiny models", Size((1, 16), (1, 16), 16, 4), rounds * 4)
    own_cost(Size((1, 16), (1, 16), 16, 4), rounds)
    parts(larger, rounds)
    metrics_cost(larger, rounds * 10)


if __name__ == "__main__":
    main()
