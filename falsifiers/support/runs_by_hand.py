"""Runs that accumulate micro-batches, and the same runs as gradient descent in closed form, one big batch a step.

The models are those of `support.windows`; the optimizer is plain gradient descent, which no factor escapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support.windows import SAMPLES, Sample, V, WindowCase, learners, models, sample_of
from reference_trainer.callbacks.base import Callback
from reference_trainer.distillation.providers import ModuleStudent
from reference_trainer.plan.schedule import Schedule

# At most 12 steps of rate 1/2 on numbers below 10, whose gradients have slopes below 10.
SAME = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class RunCase:
    """A run: the samples of each micro-batch of an epoch, which repeats, and its settings.

    clip: the largest norm of a gradient, or None. log_every: logged steps; 0 is none.
    """

    micro_batches: tuple[tuple[Sample, ...], ...]
    accumulation: int
    epochs: int
    clip: float | None
    log_every: int
    model: dict[str, Any]

    def but(self, **changes: Any) -> RunCase:
        """Return the case with these fields replaced."""
        return replace(self, **changes)

    def rate(self, step: int) -> float:
        """Return the learning rate of an optimizer step, from 1."""
        return 0.5 / step

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(len(self.micro_batches) / self.accumulation)

    def schedule(self) -> Schedule:
        return Schedule(
            epochs=self.epochs,
            steps_per_epoch=self.steps_per_epoch,
            accumulation=self.accumulation,
            micro_batches=len(self.micro_batches),
            log_every=self.log_every,
        )

    def window(self, micro_batches: Sequence[tuple[Sample, ...]]) -> WindowCase:
        """Return these micro-batches as the window of one rank."""
        samples = tuple(sample for each in micro_batches for sample in each)
        ends = [sum(map(len, micro_batches[: m + 1])) for m in range(len(micro_batches))]
        split = (tuple(tuple(range(end - len(each), end)) for end, each in zip(ends, micro_batches, strict=True)),)
        return WindowCase(samples, split, 0, True, **self.model)


LOGGED = st.integers(0, 2)


@st.composite
def run_cases(draw: st.DrawFn, *, log_every: st.SearchStrategy[int] = LOGGED) -> RunCase:
    """Draw a run of one or two epochs of up to five micro-batches, whose last window may be partial."""
    batches = st.lists(SAMPLES, min_size=0, max_size=2).map(tuple)
    micro_batches = tuple(draw(st.lists(batches, min_size=1, max_size=5)))
    model = draw(models()) | {"temperature": 2.0, "ce_weight": 0.3, "kd_weight": 0.7}
    clip = draw(st.sampled_from([None, 0.05, 0.5, 100.0]))
    return RunCase(micro_batches, draw(st.integers(1, 3)), draw(st.integers(1, 2)), clip, draw(log_every), model)


def _zeros() -> dict[str, Any]:
    zeros = {"teacher": torch.eye(3), "embedding": torch.ones(3, 2), "head": torch.eye(3)[:, :2], "bias": torch.ones(3)}
    return {k: v.double() for k, v in zeros.items()} | {"temperature": 2.0, "ce_weight": 0.3, "kd_weight": 0.7}


LONG = RunCase(tuple((sample_of(1 + n % 3, n),) for n in range(6)), 1, 2, None, 0, _zeros())
"""Two epochs of six micro-batches."""


class Moment(NamedTuple):
    """One step: the weights after it, and what on_step_end receives. An expected metric of None is absent."""

    weights: Tensor
    loss: float | None
    tokens: int
    learning_rate: float
    metrics: dict[str, float | None]


@dataclass(slots=True)
class Run:
    """A run: its steps, and the micro-batches that it asked for."""

    moments: list[Moment] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)


def flat(module: torch.nn.Module) -> Tensor:
    """Return all weights in one vector."""
    return torch.cat([parameter.detach().cpu().flatten() for parameter in module.parameters()]).clone()


class _Notes(Callback):
    def __init__(self, run: Run, module: torch.nn.Module) -> None:
        self.run, self.module = run, module

    def on_step_end(self, context: Any) -> None:
        self.run.moments.append(
            Moment(flat(self.module), context.loss, context.tokens, context.learning_rate, dict(context.metrics))
        )


def real_run(
    subject: Any,
    case: RunCase,
    device: str = "cpu",
    *,
    rank: int = 0,
    ranks: int = 1,
    wrapped: Callable[[nn.Module], nn.Module] | None = None,
    parallel: Callable[[Any], Any] | None = None,
) -> Run:
    """Train as the case says. On several ranks, each takes its share of every micro-batch; `wrapped` and `parallel`

    make the module that reduces gradients, and what the loop asks of the ranks.
    """
    teacher, student, module = learners(case.window(case.micro_batches), device)
    outer = wrapped(module) if wrapped else module
    run = Run()

    def batch_at(epoch: int, k: int) -> Any:
        run.asked.append((epoch, k))
        return case.window([case.micro_batches[k - 1][rank::ranks]]).batches(device=device)[0]

    subject.train(
        *(teacher, ModuleStudent(outer, V) if wrapped else student, batch_at),
        torch.optim.SGD(module.parameters(), 99.0),
        schedule=case.schedule(),
        objective=subject.Objective(**{k: case.model[k] for k in ("temperature", "ce_weight", "kd_weight")}),
        learning_rate=case.rate,
        callbacks=[_Notes(run, module)],
        clip=case.clip,
        **({"parallel": parallel(outer)} if parallel else {}),
    )
    return run


def by_hand(case: RunCase) -> Run:
    """Return the run in closed form: each step has one batch with all sequences of its window."""
    run, interval, tokens = Run(), list[WindowCase](), 0
    weights = {name: case.model[name].clone() for name in ("embedding", "head", "bias")}
    for step, window in enumerate(_windows(case), start=1):
        window = window.but(**weights)
        gradient, count = window.gradient(), window.count()
        norm = math.sqrt(sum(float((each**2).sum()) for each in gradient.values()))
        # torch.nn.utils.clip_grad_norm_ documents this divisor.
        share = 1.0 if case.clip is None else min(1.0, case.clip / (norm + 1e-6))
        for name, each in zip(weights, gradient.values(), strict=True):
            weights[name] = weights[name] - case.rate(step) * share * each
        interval.append(window)
        tokens += count
        logged = case.log_every and step % case.log_every == 0
        metrics = _means(interval, norm) if logged else {}
        interval = [] if logged else interval
        loss = window.nats()["loss"] / count if count else None
        after = torch.cat([each.flatten() for each in weights.values()])
        run.moments.append(Moment(after, loss, tokens, case.rate(step), metrics))
    return run


def _windows(case: RunCase) -> Iterator[WindowCase]:
    for _ in range(case.epochs):
        for start in range(0, len(case.micro_batches), case.accumulation):
            yield case.window(case.micro_batches[start : start + case.accumulation])


def _means(interval: Sequence[WindowCase], norm: float) -> dict[str, float | None]:
    """Return the means over the tokens of all steps since the last logged one, and the norm of the last step."""
    count = sum(window.count() for window in interval)
    sums = {name: math.fsum(w.nats()[name] for w in interval) for name in ("loss", "hard_loss", "soft_loss")}
    means = {name: each / count if count else None for name, each in sums.items()}
    return means | {"gradient_norm": norm}


def assert_same_run(seen: Run, expected: Run, where: str = "") -> None:
    """Assert equal steps; of the metrics, those that `expected` has. `where` begins the message."""
    assert len(seen.moments) == len(expected.moments), (
        f"{where}the run took {len(seen.moments)} optimizer steps; expected {len(expected.moments)}"
    )
    for step, (got, wanted) in enumerate(zip(seen.moments, expected.moments, strict=True), start=1):
        assert (got.tokens, got.learning_rate) == (wanted.tokens, wanted.learning_rate), (
            f"{where}step {step}: tokens and learning rate are {got.tokens} and {got.learning_rate}; expected "
            f"{wanted.tokens} and {wanted.learning_rate}"
        )
        assert _close(got.loss, wanted.loss), f"{where}step {step}: the loss is {got.loss}; expected {wanted.loss}"
        pairs = {name: (got.metrics.get(name), wanted.metrics.get(name)) for name in wanted.metrics or got.metrics}
        wrong = {name: pair for name, pair in pairs.items() if not _close(*pair)}
        assert not wrong, f"{where}step {step}: logged (seen, expected) means of all tokens differ: {wrong}"
        difference = float((got.weights - wanted.weights).abs().max())
        assert difference <= SAME, (
            f"{where}step {step}: the weights are {got.weights.tolist()}; expected {wanted.weights.tolist()}, those of "
            f"one big batch a step; difference {difference:.3g}, allowed {SAME:g}"
        )


def _close(seen: float | None, expected: float | None) -> bool:
    if seen is None or expected is None:
        return seen is expected
    return math.isclose(seen, expected, rel_tol=SAME, abs_tol=SAME)
