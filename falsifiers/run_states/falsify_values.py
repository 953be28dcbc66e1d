"""Attacks on what a run reports although it reads late: losses of a step, metrics, and the result.

The subject is that of `plan`; the expected numbers are its oracle's.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from falsifiers.callbacks.real_run import recording_callbacks
from falsifiers.run_states.plan import Plan, added, plans, same, trained
from reference_trainer.training.state import ResumePoint, RunServices, state_from_json, state_to_json

LOSSES = ("loss", "best_loss", "tokens")


def _losses(plan: Plan) -> list[float | None]:
    return [plan.sums(step).mean("loss") for step in range(1, plan.steps + 1)]


def _best(losses: list[float | None]) -> float | None:
    return min((loss for loss in losses if loss is not None and math.isfinite(loss)), default=None)


@given(plan=plans(impossible=True), delays=st.lists(st.integers(0, 20), min_size=1, max_size=6))
def falsify_late_contexts(subject: Any, device: str, plan: Plan, delays: list[int]) -> None:
    kept: list[tuple[int, Any]] = []

    def act(callback: int, event: str, context: Any) -> None:
        if event != "on_step_end":
            return
        kept.append((context.step + delays[context.step % len(delays)], context))
        for due, each in kept:
            if due == context.step:
                _assert_losses(each, plan, f"read at step {due}")

    trained(subject, plan, device, recording_callbacks(1, act))
    for _, each in kept:
        _assert_losses(each, plan, "read after the run")


def _assert_losses(context: Any, plan: Plan, when: str) -> None:
    steps = range(1, context.step + 1)
    losses, tokens = _losses(plan)[: context.step], sum(plan.sums(step).count for step in steps)
    for name, wanted in zip(LOSSES, (losses[-1], _best(losses), tokens), strict=True):
        seen = getattr(context, name)
        assert same(seen, wanted), f"the context of step {context.step}, {when}: {name} is {seen}; expected {wanted}"


@given(plan=plans(), at=st.just(0) | st.integers(1, 17))
def falsify_metrics_of_logged_steps(subject: Any, device: str, plan: Plan, at: int) -> None:
    """at: the step up to which another run logged nothing, so it formed the loss and its terms alone; 0 for none."""
    assume(at < plan.steps)
    seen: list[tuple[str, dict[str, float]]] = []

    def act(callback: int, event: str, context: Any) -> None:
        seen.append((f"{event} {context.step}", dict(context.metrics)))

    trained(subject, plan, device, recording_callbacks(1, act), **_resumed(subject, plan, device, at))
    expected = dict(_expected_metrics(plan, at))
    for event, metrics in seen:
        wanted = expected.get(event, {})
        assert bool(metrics) == (event in expected), f"{event}: the metrics are {metrics}; expected {wanted}"
        means = {name: value for name, value in metrics.items() if name in MEANS}
        close = means.keys() == wanted.keys() and all(same(means[name], wanted[name]) for name in wanted)
        assert close, f"{event}: the metrics are {means}; expected {wanted}"


MEANS = ("loss", "hard_loss", "soft_loss", "kl_at_T", "kl_at_1", "teacher_loss", "teacher_entropy", "agreement")


def _resumed(subject: Any, plan: Plan, device: str, at: int) -> dict[str, Any]:
    """Return the argument of `train` that goes on after step `at` of a run that logged nothing; none for 0."""
    states: dict[int, str] = {}

    def save(run: Any) -> None:
        states[run.state.position.step] = state_to_json(run.state)

    if not at:
        return {}
    unlogged = replace(plan, log_every=0, limit=at)
    trained(subject, unlogged, device, [], services=RunServices(save=save), save_every=1)
    return {"resume_from": ResumePoint(state=state_from_json(states[at]))}


def _expected_metrics(plan: Plan, at: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield logged steps and the oracle's metrics over the tokens of all steps since the last logged one.

    A teacher whose weight is 0 in all of them does not run, and has no metrics. The first line after step `at`, up to
    which nothing was logged, has the metrics that cover all its tokens.
    """
    every = plan.log_every or plan.steps + 1
    last = 0
    for step in range(every, plan.steps + 1, every):
        if step <= at:
            continue
        since = added([plan.sums(each) for each in range(last + 1, step + 1)])
        whole = last >= at or not any(plan.sums(each).count for each in range(1, at + 1))
        terms = [name for name, weight in zip(MEANS[1:3], plan.weights, strict=True) if weight]
        names = (MEANS if plan.weights[1] else MEANS[:2]) if whole else (MEANS[0], *terms)
        last = step
        for event in ("on_log", "on_step_end"):
            yield f"{event} {step}", {name: since.nats[name] / since.count for name in names if since.count}


STEP_S, STEP_FLOPS = 0.5, 7


@given(plan=plans(), at=st.just(0) | st.integers(1, 17))
def falsify_rates_of_logged_steps(subject: Any, device: str, plan: Plan, at: int) -> None:
    """Counting the operations of a step, once, takes a minute, which no time includes.

    at: the step from which the run is resumed, much later; 0 for a new one.
    """
    assume(at < plan.steps)
    now, seen, states = [0.0], list[tuple[int, dict[str, float]]](), dict[int, str]()

    def act(callback: int, event: str, context: Any) -> None:
        if event == "on_step_end" and context.metrics and context.step > at:
            seen.append((context.step, dict(context.metrics)))

    def save(run: Any) -> None:
        states[run.state.position.step] = state_to_json(run.state)

    def one_step_later(step: int) -> float:
        now[0] += STEP_S
        return 0.0

    def counted() -> int:
        now[0] += 60
        return STEP_FLOPS

    services = RunServices(step_flops=counted, clock=lambda: now[0])
    given: dict[str, Any] = {"learning_rate": one_step_later}
    if at:
        trained(subject, plan, device, [], services=replace(services, save=save), save_every=1, **given)
        now[0], given["resume_from"] = 1000.0, ResumePoint(state=state_from_json(states[at]))
    result = trained(subject, plan, device, recording_callbacks(1, act), services=services, **given)
    last = at
    for step, metrics in seen:
        _assert_rates(plan, last, step, metrics)
        last = step
    seconds = plan.steps * STEP_S
    assert result.elapsed_s == seconds, f"{plan.steps} steps take {result.elapsed_s} s; expected {seconds} s"
    kept = seen[-1][1] if seen else {}
    assert at or result.metrics == kept, f"the result has {result.metrics}; expected the last logged, {kept}"


def _assert_rates(plan: Plan, last: int, step: int, metrics: dict[str, float]) -> None:
    """Assert the rates of a logged step since step `last`, and its perplexities."""
    tokens = sum(plan.sums(each).count for each in range(last + 1, step + 1))
    expected = {"steps_per_s": 1 / STEP_S, "flops_per_s": STEP_FLOPS / STEP_S}
    expected["tokens_per_s"] = tokens / (step - last) / STEP_S
    for model, loss in (("student", "hard_loss"), ("teacher", "teacher_loss")):
        if loss in metrics:
            expected[f"{model}_perplexity"] = math.exp(min(metrics[loss], 20))
    for name, wanted in expected.items():
        assert same(metrics.get(name), wanted), f"step {step}: {name} is {metrics.get(name)}; expected {wanted}"


UNEVEN = Plan(
    epochs=1,
    micro_batches=2,
    accumulation=1,
    limit=None,
    log_every=0,
    batches=(((0, 1), (1, 2)), ((2, 0), (1, 1), (0, 2), (2, 0))),
)
"""An epoch of one scored token and then three."""


@given(plan=plans(impossible=True))
@example(plan=UNEVEN)
def falsify_result_does_not_depend_on_reads(subject: Any, device: str, plan: Plan) -> None:
    losses = _losses(plan)
    scored = [loss for loss in losses if loss is not None]
    expected = {
        "initial_loss": next(iter(scored), None),
        "final_loss": next(reversed(scored), None),
        "best_loss": _best(losses),
        "tokens": sum(plan.sums(step).count for step in range(1, plan.steps + 1)),
        "finite": all(map(math.isfinite, scored)),
    }
    size, last = plan.steps_per_epoch, plan.steps
    epochs = [range(first, min(first + size - 1, last) + 1) for first in range(1, last + 1, size)]
    expected_means = [added([plan.sums(step) for step in epoch]).mean("loss") for epoch in epochs]
    for log_every in (0, 1, 3, 1000):
        means: list[float | None] = []

        def act(callback: int, event: str, context: Any, means: list[float | None] = means) -> None:
            if event == "on_epoch_end":
                means.append(context.loss)

        result = trained(subject, replace(plan, log_every=log_every), device, recording_callbacks(1, act))
        for name, wanted in expected.items():
            seen = getattr(result, name)
            assert same(seen, wanted), f"logged every {log_every}: {name} is {seen}; expected {wanted}"
        assert all(map(same, means, expected_means)), f"logged every {log_every}: the epochs have {means}"
